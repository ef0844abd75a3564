"""Stores for tests of the broker: one that waits until it is told, one that fails at a call."""

import threading
from collections.abc import Sequence

from penstock.model.errors import StoreFailed
from penstock.model.records import Record
from penstock.store.memory import Memory


class WatchedStore(Memory):
    """Counts as durable; tells whether it was closed."""

    durable = True
    keeps_written = True
    is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True


class HeldStore(WatchedStore):
    """Writes and syncs wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.may_sync = threading.Event()
        self.let_go()
        self.written: list[Record] = []
        self.synced = 0

    def hold(self) -> None:
        """Let nothing through from now on."""
        self.may_write.clear()
        self.may_sync.clear()

    def let_go(self) -> None:
        """Let everything through."""
        self.may_write.set()
        self.may_sync.set()

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        assert self.may_write.wait(10)
        super().write(first, records, gone)
        self.written += records

    def sync(self) -> None:
        assert self.may_sync.wait(10)
        self.synced = len(self.written)


class SteppedStore(HeldStore):
    """Once it is to step, each sync waits for a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = threading.Semaphore(0)
        self.is_stepping = False

    def sync(self) -> None:
        assert not self.is_stepping or self.steps.acquire(timeout=10)
        super().sync()

    def run(self) -> None:
        """Let everything through again."""
        self.is_stepping = False
        self.steps.release()


class FailingStore(WatchedStore):
    """Fails at the call of a number, counted over writes and syncs, once or from then on."""

    def __init__(self, at: int, *, error: Exception | None = None, permanent: bool = False) -> None:
        super().__init__()
        self.at = at
        self.error = error or StoreFailed("the disk is on fire", key="store")
        self.permanent = permanent
        self.calls = 0
        self.names: list[str] = []

    def _count(self, name: str) -> None:
        self.calls += 1
        self.names.append(name)
        if self.calls == self.at or (self.permanent and self.calls > self.at):
            raise self.error

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        self._count("write")
        super().write(first, records, gone)

    def sync(self) -> None:
        self._count("sync")
