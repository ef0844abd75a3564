"""The source `penstock` of Spark: the change log as rows, in batches and as a stream; and where the format is named."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.model.errors import BadRequest, NoObject, NotAssigned
from penstock.pipeline.schemas import EVENTS
from penstock.pipeline.sink import BatchWriter, StreamWriter
from penstock.pipeline.sink_options import sink_options
from penstock.pipeline.source_filters import Narrowed
from penstock.pipeline.source_options import SHARD, Selection, SourceOptions, source_options
from penstock.pipeline.source_reading import LogPartition, LogRanges, StretchReader
from penstock.pipeline.workers import send_along

#: Stands for no limit where the broker wants a number.
_UNLIMITED = 2**62


def register(spark: SparkSession) -> None:
    """Let a session know the format `penstock`, and its workers on other machines this package."""
    send_along(spark)
    spark.createDataFrame([], "nothing int")  # makes it the active one, in which Spark looks whether the name is free
    spark.dataSource.register(PenstockDataSource)


class PenstockDataSource(DataSource):
    """What `format("penstock")` stands for; docs/pipeline.md tells its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns, unless the user asks for some of them by `schema(…)`."""
        return EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        options = source_options(self.options)
        _check_columns(schema)
        return FilteringReader(options, schema) if options.pushes_down else BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # as Spark calls it
        """Return what reads a stream."""
        options = source_options(self.options)
        _check_columns(schema)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # as Spark calls it
        """Return what writes a DataFrame."""
        return BatchWriter(sink_options(self.options, schema, overwrite=overwrite, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes a stream."""
        return StreamWriter(sink_options(self.options, schema, overwrite=overwrite, is_stream=True))


class BatchReader(DataSourceReader):
    """Reads a range of the log once; it moves no reader, and pins what it has planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowed = Narrowed(options.selection)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read."""
        ranges = LogRanges(self._options)
        extent = ranges.client.extent()
        first = ranges.position_of(self._options.starting, extent)
        if self._options.reader is not None:
            known = ranges.client.readers().get(self._options.reader)
            first = first if known is None else known.position
        end = min(extent.end, self._narrowed.end, ranges.position_of(self._options.ending, extent))
        return ranges.pinned(ranges.partitions(max(first, self._narrowed.first), end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition, on a worker."""
        return _rows(self._options, self._schema, self._narrowed.selection, partition)


class FilteringReader(BatchReader):
    """Takes filters from Spark; of a class of its own, since Spark refuses whoever could unless it is configured for it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take those that can be applied while reading, and return the others."""
        return list(self._narrowed.take(filters))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log; where it has come to stands in the checkpoint, and in a reader of the broker if there is one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        #: Tells this run of the query from others by the same reader.
        self._owner = uuid.uuid4().hex
        self._has_reader = False
        #: Where a query that wants what is available now ends.
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins: at its reader, else where the options say."""
        ranges = LogRanges(self._options)
        extent = ranges.client.extent()
        position = ranges.position_of(self._options.starting, extent)
        if self._options.reader is None:
            return _offset(position)
        return _offset(self._take_reader(ranges, position))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends: within its limits, and after at least one row if there is one."""
        ranges, position = LogRanges(self._options), start[SHARD]
        extent = ranges.client.extent()
        if self._options.reader is not None and not self._has_reader:
            self._take_reader(ranges, position)
        first = ranges.checked(position, extent)
        end = extent.end if self._target is None else min(extent.end, self._target)
        if end <= first:
            return _offset(max(position, end))
        if isinstance(limit, ReadAllAvailable):
            return _offset(end)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNLIMITED
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        return _offset(ranges.client.advance(first, end, rows, size or _UNLIMITED))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far the log has come, for those who watch how far the query is behind."""
        return _offset(LogRanges(self._options).client.extent().end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what is there now for the end."""
        self._target = LogRanges(self._options).client.extent().end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return partitions of stretches of segments."""
        return LogRanges(self._options).partitions(start[SHARD], end[SHARD])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition, on a worker."""
        return _rows(self._options, self._schema, self._options.selection, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Move the reader: what is before will not be asked for again."""
        name = self._options.reader
        if name is None:
            return
        client = LogRanges(self._options).client
        try:
            client.move_reader(name, self._owner, end[SHARD])
        except NoObject:
            raise NoObject(
                f"the reader {name!r} is gone: somebody removed it. Start the query again; it goes on from its "
                "checkpoint, and makes the reader anew",
                key="reader",
            ) from None
        except NotAssigned:
            raise NotAssigned(
                f"another query has begun to read by the reader {name!r}, and this one ends. A reader is for one query; "
                "give each its own by the option `reader`",
                key="reader",
            ) from None

    def _take_reader(self, ranges: LogRanges, position: int) -> int:
        """Read by the reader of the options; returns where it is."""
        assert self._options.reader is not None  # noqa: S101  # asked by the caller
        taken = ranges.client.take_reader(self._options.reader, self._owner, position)
        self._has_reader = True
        return taken.position


def _check_columns(schema: StructType) -> None:
    for name in schema.names:
        if name not in EVENTS.names:
            raise BadRequest(f"there is no column {name!r}; there are {', '.join(EVENTS.names)}", key="schema")


def _rows(
    options: SourceOptions, schema: StructType, selection: Selection, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """Read a partition; Spark makes a task without a partition of a plan that has none."""
    if isinstance(partition, LogPartition):
        yield from StretchReader(options, schema, selection).rows(partition)


def _offset(position: int) -> dict[str, Any]:
    return {SHARD: position}
