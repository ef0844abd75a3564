"""Segments made ahead of need, so that rolling over never waits for the disk, and so that a full disk is seen early.

Kept ready: the next segment, one in reserve so that settlements fit when no more can be had, and a ballast that save and
collect may let go of to have room to work in. Room for new messages is there as long as all three are.
"""

import os
import threading
from collections.abc import Callable

from penstock.store.journal.filesystem import FileSystem, is_full, write_all

BALLAST = "ballast.tmp"
SPARES = ("spare-0.tmp", "spare-1.tmp")
#: Zeros are written and synced in slices, with a pause between, so that they do not hold up commits.
_SLICE = bytes(1 << 20)
_PAUSE_SECONDS = 0.005


class Spares:
    """The files made ahead; safe for threads."""

    def __init__(self, file_system: FileSystem, directory: str, segment_bytes: int) -> None:
        self._file_system = file_system
        self._directory = directory
        self.segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._ready: list[str] = []
        self._ballast = 0  # bytes of it
        #: Of the last index: the next one must fit into the ballast.
        self.index_bytes = 0
        self._zeroed: dict[str, int] = {}
        #: Whether new messages can be taken.
        self.has_room = False

    def adopt(self, names: list[str]) -> None:
        """Take over what an earlier process made; what has another size is made anew."""
        for name in names:
            path = os.path.join(self._directory, name)
            file = self._file_system.open(path)
            size = file.size()
            file.close()
            if name == BALLAST:
                self._ballast = size
            elif size != self.segment_bytes:
                self._file_system.remove(path)
            else:
                self._ready.append(path)
                self._zeroed[path] = size

    def top_up(self) -> bool:
        """Make what is missing; False when there is no room for it."""
        with self._lock:
            try:
                self._make_spares(1)
                self._make_ballast()
                self._make_spares(len(SPARES))
                self.has_room = True
            except OSError as error:
                if not is_full(error):
                    raise
                self.has_room = False
            return self.has_room

    def _make_ballast(self) -> None:
        """Make a ballast that is large enough, and not far too large."""
        wanted = self.segment_bytes // 2 + self.index_bytes
        if not wanted <= self._ballast <= 2 * wanted:
            self._ballast = 0
            self.make(os.path.join(self._directory, BALLAST), wanted)
            self._ballast = wanted

    def _make_spares(self, count: int) -> None:
        for name in SPARES:
            path = os.path.join(self._directory, name)
            if len(self._ready) < count and path not in self._ready:
                self.make(path, self.segment_bytes)
                self._ready.append(path)
                self._zeroed[path] = 0

    def make(self, path: str, size: int) -> None:
        """Make a file with its space reserved; when there is no room, nothing of it stays."""
        file = self._file_system.open(path, create=True)
        try:
            file.allocate(size)
        except OSError:
            file.close()
            self._file_system.remove(path)
            raise
        file.close()

    def take(self, path: str) -> bool:
        """Give the next spare segment this path; False when there is none left."""
        with self._lock:
            if not self._ready:
                return False
            # Renamed under the lock: once the spare's own name is free, the maintenance thread makes it anew.
            self._file_system.rename(self._ready[0], path)
            self._zeroed.pop(self._ready.pop(0), None)
            is_last = not self._ready
        if is_last:
            self.top_up()  # else it would be known too late that the disk is full
        return True

    @property
    def ballast_dropped(self) -> bool:
        """Whether the ballast was let go of and not made again."""
        return not self._ballast

    def with_ballast(self, work: Callable[[], None], give_up: Callable[[], bool] | None = None) -> None:
        """Do work that needs room; when there is none, let go of the ballast, then of what `give_up` can, and try again."""
        lack = lack_of_room(work)
        if lack is None:
            return
        with self._lock:  # else the thread that tops up might take the room
            for free in (self._drop_ballast, give_up):
                if lack is not None and free is not None and free():
                    lack = lack_of_room(work)
        if lack is not None:
            raise lack

    def _drop_ballast(self) -> bool:
        """Give the ballast's room back to the disk; False when it was gone already. `top_up` makes it again."""
        if not self._ballast:
            return False
        self._file_system.remove(os.path.join(self._directory, BALLAST))
        self._ballast = 0
        return True

    def zero_slice(self) -> bool:
        """Write zeros to a slice of the next segment; False when it is done.

        Overwriting zeros syncs in two thirds of the time that writing into freshly allocated extents takes.
        """
        with self._lock:
            path = self._ready[0] if self._ready else ""
            done = self._zeroed.get(path, self.segment_bytes)
            if done >= self.segment_bytes:
                return False
            file = self._file_system.open(path)
            try:
                write_all(file, _SLICE[: self.segment_bytes - done], done)
                file.sync()
            finally:
                file.close()
            self._zeroed[path] = done + len(_SLICE)
            return True


def lack_of_room(work: Callable[[], None]) -> OSError | None:
    """Do something; return the error if there was no room for it."""
    try:
        work()
    except OSError as error:
        if not is_full(error):
            raise
        return error
    return None


class Maintenance:
    """A thread that keeps the spares topped up and zeroed; it sleeps until it is woken."""

    def __init__(self, spares: Spares, fail: Callable[[str, OSError], object]) -> None:
        self._spares = spares
        self._fail = fail
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Say that a spare was used."""
        self._wake.set()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._spares.top_up()
                while self._spares.zero_slice() and not self._stop.wait(_PAUSE_SECONDS):
                    pass
            except OSError as error:
                self._fail("preparing a segment", error)
                return
