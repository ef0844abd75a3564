"""Commits: batches of records on their way into the store, one at a time, in a thread of their own.

What arrives while one is written forms the next, so batches grow with the load and a lone record waits for one sync.
"""

import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from penstock.engine.effects import Notice
from penstock.model.errors import StoreError, StoreFailed
from penstock.model.records import Record
from penstock.model.stages import Stage
from penstock.store.port import Store

Told = TypeVar("Told")


class Commit:
    """A batch, and who waits for it."""

    __slots__ = (
        "after_sync",
        "after_write",
        "error",
        "first",
        "gone",
        "notices",
        "records",
        "synced",
        "to_persist",
        "written",
    )

    def __init__(
        self, first: int, records: list[Record], gone: list[int], notices: list[Notice], to_persist: list[Notice]
    ) -> None:
        self.first = first
        self.records = records
        self.gone = gone
        #: To be sent when it is synced, and who is to be told when it is written or synced.
        self.notices = notices
        self.to_persist = to_persist
        self.written: list[Future[None]] = []
        self.synced: list[Future[None]] = []
        self.after_write: list[Callable[[], None]] = []
        self.after_sync: list[Callable[[], None]] = []
        self.error: StoreError | None = None

    def persisted(self, stage: Stage) -> list[Notice]:
        """Return the notices that say so, now that it is."""
        return [notice._replace(stage=stage) for notice in self.to_persist if notice.stage & stage]

    @property
    def end(self) -> int:
        """The position after its last record."""
        return self.first + len(self.records)


class Committer:
    """The thread that writes and syncs, and says when it has."""

    def __init__(
        self,
        store: Store,
        loop: AbstractEventLoop,
        on_write: Callable[[Commit], None],
        on_sync: Callable[[Commit], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._on_write = on_write
        self._on_sync = on_sync
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="penstock-commit", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Write and sync a commit; the one before must be done."""
        self._commits.put(commit)

    def seal(self) -> None:
        """Have the store leave evidence of the last sync; nothing must be under way."""
        self._commits.put(_SEAL)

    def stop(self) -> None:
        """Finish what was submitted, and end the thread."""
        self._commits.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (commit := self._commits.get()) is not None:
            if commit is _SEAL:
                self._try(self._store.seal)
                continue
            commit.error = self._try(partial(self._store.write, commit.first, commit.records, commit.gone))
            if self._store.keeps_written:
                self._tell_written(commit)
            if commit.error is None:
                commit.error = self._try(self._store.sync)
            if not self._store.keeps_written:
                self._tell_written(commit)
            self._tell(self._on_sync, commit)

    def _tell_written(self, commit: Commit) -> None:
        if commit.error is None and (commit.written or commit.after_write or commit.to_persist):
            self._tell(self._on_write, commit)

    def _try(self, action: Callable[[], None]) -> StoreError | None:
        try:
            action()
        except StoreError as error:
            return error
        except Exception as error:  # whatever a store of somebody's own raises ends all promises
            failed = StoreFailed("the store failed in a way that nobody has foreseen; the log has more", key="store")
            failed.__cause__ = error
            self._tell(self._loop.call_exception_handler, {"message": "the store failed", "exception": error})
            return failed
        return None

    def _tell(self, whom: Callable[[Told], object], what: Told) -> None:
        try:
            self._loop.call_soon_threadsafe(whom, what)
        except RuntimeError:
            return  # the loop is closed; nobody waits any more


_SEAL = Commit(0, [], [], [], [])
