"""Reading ranges of the log: which stretches a range consists of, and the rows of one stretch, on a worker of Spark."""

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.model.errors import BadRequest, NoObject, StoreDamaged
from penstock.pipeline.decoding import Decoder, Records, whole_batches
from penstock.pipeline.log_client import READ_BYTES, Extent, LogClient, Stretch
from penstock.pipeline.names import NameBook
from penstock.pipeline.source_options import Place, Selection, SourceOptions
from penstock.store.batches import Columns

LOG = logging.getLogger("penstock.pipeline")


#: What a task reads at least and at most, where the log has as much: each writes a file of its own, and a small file
#: costs Parquet as many vain attempts to find repetitions as a large one.
PARTITION_BYTES_MIN = 16 * 2**20
PARTITION_BYTES_MAX = 64 * 2**20
#: Partitions of a range that is neither small nor large.
PARTITIONS = 8


class LogPartition(InputPartition):
    """Stretches of the log that follow each other, and by which pin they are held for a batch read."""

    def __init__(self, stretches: list[Stretch], part: int, pin: int | None = None) -> None:
        super().__init__(None)
        self.stretches = stretches
        self.part = part
        self.pin = pin


class LogRanges:
    """What the driver asks about ranges of the log."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.client = LogClient(options.url)

    def position_of(self, place: Place, extent: Extent) -> int:
        """Return the position of a place that an option names."""
        if place.is_latest:
            return extent.end
        if place.time is not None:
            return self.client.position_at(place.time)
        if place.position is None:
            return extent.first
        return place.position

    def checked(self, first: int, extent: Extent) -> int:
        """Return from where on a range that begins at `first` can be read; raises when records of it are lost."""
        if first > extent.end:
            raise BadRequest(
                f"the log ends at position {extent.end}, and {first} was asked for. Does `url` name another broker "
                "than the checkpoint was made with, or was its data directory emptied? Start with a new checkpoint",
                key="position",
            )
        if max(first, 1) < extent.first:
            self._lost(first, extent.first)
        return max(first, extent.first)

    def partitions(self, first: int, end: int) -> list[LogPartition]:
        """Return partitions of a range, of whole stretches."""
        extent = self.client.extent()
        first = self.checked(first, extent)
        stretches = self.client.stretches(first, end) if first < end else []
        return [LogPartition(group, part) for part, group in enumerate(grouped(stretches))]

    def pinned(self, partitions: list[LogPartition]) -> list[LogPartition]:
        """Have the log kept until all of these were read, for ten minutes at most."""
        if partitions:
            pin = self.client.pin(partitions[0].stretches[0].first, len(partitions))
            for partition in partitions:
                partition.pin = pin
        return partitions

    def _lost(self, first: int, kept: int) -> None:
        lost = f"the records from position {first} up to {kept} are not in the log any more"
        if self._options.fails_on_data_loss:
            raise NoObject(
                f"{lost}: retention has passed them. The option failOnDataLoss=false goes on without them; "
                "`penstock serve --retain-log` and `--reader-hold` keep more",
                key="position",
            )
        LOG.warning("%s; going on without them (failOnDataLoss=false)", lost)


def grouped(stretches: list[Stretch]) -> list[list[Stretch]]:
    """Put stretches that follow each other together, until they are as large as a partition should be."""
    total = sum(stretch.end - stretch.start for stretch in stretches)
    wanted = min(max(total // PARTITIONS, PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)
    groups: list[list[Stretch]] = []
    size = wanted
    for stretch in stretches:
        if size >= wanted:
            groups.append([])
            size = 0
        groups[-1].append(stretch)
        size += stretch.end - stretch.start
    return groups


class StretchReader:
    """What a worker does with a partition."""

    def __init__(self, options: SourceOptions, schema: StructType, selection: Selection) -> None:
        self._options = options
        self._selection = selection
        self._client = LogClient(options.url)
        self._names = NameBook(self._client.names)
        self._decoder = Decoder(schema, self._names)

    def rows(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        for stretch in partition.stretches:
            yield from self._kept_rows(stretch)
        if partition.pin is not None:
            self._client.unpin(partition.pin, partition.part)

    def _kept_rows(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch, if it is still there."""
        try:
            for batches in self._batches(stretch):
                yield from self._decoded(Records(batches), stretch)
        except NoObject as error:
            if self._options.fails_on_data_loss:
                raise NoObject(
                    f"the records up to position {stretch.last} went from the log while they were read: "
                    f"{error}. The option failOnDataLoss=false goes on without them, a `reader` keeps them",
                    key="position",
                ) from None
            LOG.warning("%s; going on without it (failOnDataLoss=false)", error)

    def _batches(self, stretch: Stretch) -> Iterator[list[Columns]]:
        """Yield the batches of a stretch, a few megabytes at a time."""
        offset, data = stretch.start, b""
        while offset < stretch.end:
            begin = offset + len(data)
            more = self._client.read(stretch.file, begin, min(stretch.end, begin + READ_BYTES))
            if not more:
                raise StoreDamaged(f"the log ends at offset {begin} of file {stretch.file}, within a batch", key="log")
            data += more
            found, read = [], 0
            for columns, read in whole_batches(data, stretch.salt, offset):  # noqa: B007  # how far it came is kept
                if columns is not None:
                    found.append(columns)
            if found:
                yield found
            offset, data = offset + read, data[read:]

    def _decoded(self, records: Records, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        wanted = (records.positions >= stretch.first) & (records.positions <= stretch.last)
        if self._selection.kinds is not None:
            wanted &= np.isin(records.kinds, list(self._selection.kinds))
        if not wanted.any():
            return
        self._names.learn(records)
        if self._selection.is_of_channels:
            wanted &= self._of_channels(records)
        if wanted.all():
            yield self._decoder.decode(records)
        elif wanted.any():
            yield self._decoder.decode(records).filter(pa.array(wanted))

    def _of_channels(self, records: Records) -> NDArray[np.bool_]:
        numbers, places = records.unique_cursors
        fits = np.array([self._fits(number) for number in numbers.tolist()], dtype=np.bool_)
        return np.asarray(fits[places], dtype=np.bool_)

    def _fits(self, number: int) -> bool:
        name, selection = self._names.cursors[number], self._selection
        if selection.channel is not None and name.channel != selection.channel:
            return False
        return selection.tags is None or (name.channel is not None and frozenset(name.tags or ()) == selection.tags)
