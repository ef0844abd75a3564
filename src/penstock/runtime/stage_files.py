"""Stages as files: in the directory of the store, or in one that goes with the broker where a store has none."""

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.store.port import StageKept, Stages

#: Read at a time.
PART_BYTES = 2**20
_SUFFIX = ".rows"


class StageFiles(Stages):
    """See the module."""

    def __init__(self, directory: str | None) -> None:
        self._path = None if directory is None else Path(directory) / "stages"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    def kept(self) -> list[StageKept]:
        """Return what is there."""
        if self._path is None or not self._path.is_dir():
            return []
        files = [(path.name.removesuffix(_SUFFIX), path.stat()) for path in self._path.glob(f"*{_SUFFIX}")]
        return [StageKept(name, status.st_size, status.st_mtime) for name, status in files]

    def has(self, name: str) -> bool:
        """Whether there is a stage of this name."""
        return self._place(name).exists()

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a stage."""
        with self._place(name).open("ab") as file:
            file.write(data)

    def sync(self, names: Iterable[str]) -> None:
        """Bring stages to the disk."""
        for path in [*map(self._place, names), self._directory()]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def parts(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a stage."""
        with self._place(name).open("rb") as file:
            while part := file.read(PART_BYTES):
                yield part

    def drop(self, name: str) -> int:
        """Throw a stage away; returns how many bytes it had."""
        path = self._place(name)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def close(self) -> None:
        """Drop what was to live no longer than the broker."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _directory(self) -> Path:
        with self._lock:
            if self._path is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="penstock-stages-")
                self._path = Path(self._temporary.name)
        self._path.mkdir(mode=0o750, exist_ok=True)
        return self._path

    def _place(self, name: str) -> Path:
        return self._directory() / (name + _SUFFIX)
