"""The saved states of the engine: the newest two are kept, so that one that is damaged can be done without."""

import os
from collections.abc import Callable
from typing import NamedTuple

from penstock.store.journal.filesystem import FileSystem, is_full, write_all
from penstock.store.journal.format import IndexHeader, pack_index, unpack_index

INDEX_SUFFIX = ".idx"
TEMPORARY = ".tmp"
#: Segments are collected only as far as the older one reaches, so that either is enough to start from.
KEPT = 2

#: Does work that needs room; on a full disk once more with each of two ways to get some.
WithBallast = Callable[[Callable[[], None], Callable[[], bool]], None]


class Index(NamedTuple):
    """A saved index."""

    path: str
    header: IndexHeader


class Indexes:
    """The indexes that there are, oldest first. Used by one thread at a time."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        self.kept: list[Index] = []

    def safe_position(self) -> int:
        """Return the position before which no index needs the log."""
        return self.kept[-KEPT].header.position if len(self.kept) >= KEPT else 0

    def save(self, position: int, last: int, state: bytes, with_ballast: WithBallast) -> None:
        """Write an index under a temporary name, sync it, give it its name, and let the oldest go."""
        data = pack_index(position, last, 0.0, state)
        path = self._free_path(position)
        temporary = path + TEMPORARY
        with_ballast(lambda: write_file(self._file_system, temporary, data), self._spare_one)
        self._file_system.rename(temporary, path)
        self._file_system.sync_directory(self._directory)
        self.kept.append(Index(path, unpack_index(data)[0]))
        while len(self.kept) > KEPT:
            self._remove_oldest()

    def _spare_one(self) -> bool:
        """Let go of the oldest when there is no room for one more: the newer one is enough to start from."""
        if len(self.kept) < KEPT:
            return False
        self._remove_oldest()
        return True

    def _remove_oldest(self) -> None:
        self._file_system.remove(self.kept[0].path)
        del self.kept[0]

    def _free_path(self, position: int) -> str:
        """Return a path that sorts after those there; the serial tells apart those of one position."""
        newest = order(os.path.basename(self.kept[-1].path)) if self.kept else None
        serial = newest[1] + 1 if newest is not None and newest[0] == position else 0
        return os.path.join(self._directory, f"{position:020d}.{serial:04d}{INDEX_SUFFIX}")


def order(name: str) -> tuple[int, int] | None:
    """Return position and serial of an index's file name; None when it is none."""
    position, _, serial = name.removesuffix(INDEX_SUFFIX).partition(".")
    if not name.endswith(INDEX_SUFFIX) or not position.isdecimal() or not serial.isdecimal():
        return None
    return int(position), int(serial)


def write_file(file_system: FileSystem, path: str, data: bytes) -> None:
    """Write a whole file and sync it; when there is no room, nothing of it stays."""
    file = file_system.open(path, create=True)
    try:
        write_all(file, data, 0)
        file.sync()
    except OSError as error:
        if is_full(error):
            file_system.remove(path)
        raise
    finally:
        file.close()


def sorted_names(names: list[str]) -> list[str]:
    """Return the names of indexes among others, oldest first."""
    places = {name: place for name in names if (place := order(name)) is not None}
    return sorted(places, key=places.__getitem__)
