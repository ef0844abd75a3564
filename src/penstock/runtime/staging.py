"""Rows that are staged: files beside the store, which nobody sees until their batch is decided.

A stage is what one task of a query writes: frames, each of a u32 length, a u32 CRC32C, and rows in MessagePack.
Nothing is kept in memory but how much there is. All methods may be slow, and are called from threads.
"""

import os
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from crc32c import crc32c

from penstock.model.errors import BadRequest, NoObject, StoreDamaged, TooLarge
from penstock.model.staged import StagedRow

#: Of all stages together: a bound for what queries that died leave behind until it is too old.
STAGED_BYTES_MAX = 10 * 2**30
#: What nobody has published by then belongs to a query that has died.
STAGE_SECONDS = 86400.0
#: Rows that are published in one go, without a turn for others: some milliseconds.
FRAME_BYTES_MAX = 2**26
NAME_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
NAME_CHARACTERS_MAX = 200
_HEADER = struct.Struct("<II")
_SUFFIX = ".rows"


class Staging:
    """The stages of one broker; without a directory they live as long as it does."""

    def __init__(self, directory: str | None) -> None:
        self._path = None if directory is None else Path(directory) / "stages"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._bytes = 0

    def open(self, now: float, needed: Iterable[str]) -> None:
        """Find what is staged, and drop what is too old and not needed."""
        keep = set(needed)
        for name, status in self._listed():
            if name not in keep and status.st_mtime + STAGE_SECONDS < now:
                self.drop([name])
        self._bytes = sum(status.st_size for _, status in self._listed())

    def close(self) -> None:
        """Drop what was to live no longer than this."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def append(self, stage: str, data: bytes) -> None:
        """Add bytes to a stage."""
        path = self._place(stage)
        with self._lock:
            if self._bytes + len(data) > STAGED_BYTES_MAX:
                raise TooLarge(
                    f"{self._bytes} bytes are staged by queries already; at most {STAGED_BYTES_MAX} are allowed",
                    key="stage",
                    limit=STAGED_BYTES_MAX,
                )
            self._bytes += len(data)
        with path.open("ab") as file:
            file.write(data)

    def sync(self, stages: Iterable[str]) -> None:
        """Bring stages to the disk."""
        for stage in stages:
            descriptor = os.open(self._existing(stage), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        descriptor = os.open(self._directory(), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def frames(self, stages: Iterable[str]) -> Iterator[list[StagedRow]]:
        """Yield the rows of stages, frame by frame."""
        decoder = msgspec.msgpack.Decoder(list[StagedRow])
        for stage in stages:
            with self._existing(stage).open("rb") as file:
                while header := file.read(_HEADER.size):
                    length, checksum = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
                    data = file.read(min(length, FRAME_BYTES_MAX))
                    if len(data) != length or crc32c(data) != checksum:
                        raise StoreDamaged(f"the stage {stage} is not whole", key="stage", file=stage)
                    try:
                        yield decoder.decode(data)
                    except msgspec.DecodeError as error:
                        raise BadRequest(
                            f"the rows of the stage {stage} cannot be read: {error}", key="stage"
                        ) from None

    def drop(self, stages: Iterable[str]) -> None:
        """Throw stages away; one that is not there is no error."""
        for stage in stages:
            path = self._place(stage)
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                with self._lock:
                    self._bytes -= size

    def of_query(self, query: str, batch: int) -> list[str]:
        """Return the stages of a query up to a batch, by names such as `query.batch.task`."""
        parts = {name: name.rsplit(".", 2) for name, _ in self._listed()}
        return [
            name
            for name, (of, *rest) in parts.items()
            if of == query and len(rest) == 2 and rest[0].isdecimal() and int(rest[0]) <= batch
        ]

    def _listed(self) -> list[tuple[str, os.stat_result]]:
        if self._path is None or not self._path.is_dir():
            return []
        return [(path.name.removesuffix(_SUFFIX), path.stat()) for path in self._path.glob(f"*{_SUFFIX}")]

    def _directory(self) -> Path:
        with self._lock:
            if self._path is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="penstock-stages-")
                self._path = Path(self._temporary.name)
        self._path.mkdir(mode=0o750, exist_ok=True)
        return self._path

    def _place(self, stage: str) -> Path:
        if not 0 < len(stage) <= NAME_CHARACTERS_MAX or not NAME_CHARACTERS.issuperset(stage):
            raise BadRequest(f"a stage is named by letters, digits, '-', '_' and '.', not {stage[:100]!r}", key="stage")
        return self._directory() / (stage + _SUFFIX)

    def _existing(self, stage: str) -> Path:
        path = self._place(stage)
        if not path.exists():
            raise NoObject(
                f"the stage {stage} is not there: it was thrown away, or was too old. Run the batch again", key="stage"
            )
        return path
