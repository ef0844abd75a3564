"""Rows that are staged: kept beside the log, where nobody sees them until their batch is decided.

A stage is what one task of a query writes: frames, each of a u32 length, a u32 CRC32C, and rows in MessagePack.
Nothing is kept in memory but how much there is. All methods may be slow, and are called from threads.
"""

import struct
import threading
from collections.abc import Iterable, Iterator

import msgspec
from crc32c import crc32c

from penstock.model.errors import BadRequest, NoObject, StoreDamaged, TooLarge
from penstock.model.staged import StagedRow
from penstock.store.port import Stages

#: Of all stages together: a bound for what queries that died leave behind until it is too old.
STAGED_BYTES_MAX = 10 * 2**30
#: What nobody has published by then belongs to a query that has died.
STAGE_SECONDS = 86400.0
#: Rows that are published in one go, without a turn for others: some milliseconds.
FRAME_BYTES_MAX = 2**26
NAME_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
NAME_CHARACTERS_MAX = 200
_HEADER = struct.Struct("<II")


class Staging:
    """The stages of one broker."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._lock = threading.Lock()
        self._bytes = 0

    def open(self, now: float, needed: Iterable[str]) -> None:
        """Find what is staged, and drop what is too old and not needed."""
        keep = set(needed)
        for stage in self._stages.kept():
            if stage.name not in keep and stage.changed_at + STAGE_SECONDS < now:
                self._stages.drop(stage.name)
        self._bytes = sum(stage.bytes for stage in self._stages.kept())

    def close(self) -> None:
        """Drop what was to live no longer than this."""
        self._stages.close()

    def append(self, stage: str, data: bytes) -> None:
        """Add bytes to a stage."""
        _check_name(stage)
        with self._lock:
            if self._bytes + len(data) > STAGED_BYTES_MAX:
                raise TooLarge(
                    f"{self._bytes} bytes are staged by queries already; at most {STAGED_BYTES_MAX} are allowed",
                    key="stage",
                    limit=STAGED_BYTES_MAX,
                )
            self._bytes += len(data)
        self._stages.append(stage, data)

    def sync(self, stages: Iterable[str]) -> None:
        """Make stages durable."""
        names = list(stages)
        for stage in names:
            self._check_there(stage)
        self._stages.sync(names)

    def frames(self, stages: Iterable[str]) -> Iterator[list[StagedRow]]:
        """Yield the rows of stages, frame by frame."""
        decoder = msgspec.msgpack.Decoder(list[StagedRow])
        for stage in stages:
            self._check_there(stage)
            for frame in _frames(stage, self._stages.parts(stage)):
                try:
                    yield decoder.decode(frame)
                except msgspec.DecodeError as error:
                    raise BadRequest(f"the rows of the stage {stage} cannot be read: {error}", key="stage") from None

    def drop(self, stages: Iterable[str]) -> None:
        """Throw stages away; one that is not there is no error."""
        for stage in stages:
            _check_name(stage)
            size = self._stages.drop(stage)
            with self._lock:
                self._bytes -= size

    def of_query(self, query: str, batch: int) -> list[str]:
        """Return the stages of a query up to a batch, by names such as `query.batch.task`."""
        parts = {stage.name: stage.name.rsplit(".", 2) for stage in self._stages.kept()}
        return [
            name
            for name, (of, *rest) in parts.items()
            if of == query and len(rest) == 2 and rest[0].isdecimal() and int(rest[0]) <= batch
        ]

    def _check_there(self, stage: str) -> None:
        _check_name(stage)
        if not self._stages.has(stage):
            raise NoObject(
                f"the stage {stage} is not there: it was thrown away, or was too old. Run the batch again", key="stage"
            )


def _check_name(stage: str) -> None:
    if not 0 < len(stage) <= NAME_CHARACTERS_MAX or not NAME_CHARACTERS.issuperset(stage):
        raise BadRequest(f"a stage is named by letters, digits, '-', '_' and '.', not {stage[:100]!r}", key="stage")


def _frames(stage: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield whole frames from bytes that come in parts of any size."""
    data = bytearray()
    for part in parts:
        data += part
        while (frame := _frame(stage, data)) is not None:
            yield frame
    if data:
        raise _damaged(stage)


def _frame(stage: str, data: bytearray) -> bytes | None:
    """Take the first frame off the data; None when it is not whole yet."""
    if len(data) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    if length > FRAME_BYTES_MAX:
        raise _damaged(stage)
    if len(data) < end:
        return None
    frame = bytes(data[_HEADER.size : end])
    if crc32c(frame) != checksum:
        raise _damaged(stage)
    del data[:end]
    return frame


def _damaged(stage: str) -> StoreDamaged:
    return StoreDamaged(f"the stage {stage} is not whole", key="stage", file=stage)
