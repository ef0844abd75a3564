"""Upkeep: what is done for the store now and then, in a thread beside the commits.

An index is saved when the log has grown enough since the last one, and what nobody needs any more is collected.
"""

import asyncio
import contextlib
import os
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine import snapshot
from penstock.engine.readers import LogStretch, Retention
from penstock.model.errors import StoreError, StoreFull, Unavailable
from penstock.model.stages import Level
from penstock.runtime.backup import Tell, write_backup
from penstock.runtime.capture import Capture
from penstock.runtime.commits import Commit
from penstock.runtime.interpreter import in_small_turns, without_garbage
from penstock.runtime.recovery import encoded, size_in_log

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

INDEX_BYTES = 64 * 2**20  # of log between two indexes: what a start after a crash has to replay
INDEX_BYTES_SHARED = 16 * 2**20  # the same where another broker stands by, and everybody waits while it replays
INDEX_FACTOR = 2  # and this many times the size of the last index, so that indexes stay a part of what is written
ROOM_SECONDS = 0.2  # between two tries to get room while nothing happens


class Upkeep:
    """See the module."""

    def __init__(self, runtime: "Runtime", retention: Retention) -> None:
        self._runtime = runtime
        self.retention = retention
        self._loop: AbstractEventLoop
        self._executor: ThreadPoolExecutor | None = None
        self._grown = 0  # bytes of log since the last index, about
        self._index_bytes = 0
        self._busy = asyncio.Lock()  # one index at a time
        self._capture: Capture | None = None  # of the backup that is being made
        self._task: asyncio.Task[None] | None = None
        self._makes_room: asyncio.Task[None] | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Begin."""
        self._loop = loop
        self._grown = self._runtime.restored.replayed_bytes
        if self._runtime.store.durable:
            self._executor = ThreadPoolExecutor(1, "penstock-upkeep")

    def cancel(self) -> None:
        """Begin nothing more."""
        if self._makes_room is not None:
            self._makes_room.cancel()

    def stop(self) -> None:
        """End the thread, after what it is doing, and a backup that is being made."""
        if self._capture is not None:
            self._capture.end()
        if self._executor is not None:
            self._executor.shutdown()

    def count(self, commit: Commit) -> None:
        """Take note of how much is added to the log."""
        self._grown += size_in_log(commit.records)

    def committed(self, commit: Commit) -> None:
        """Save an index and collect, if it is time."""
        del commit
        enough = INDEX_BYTES_SHARED if self._runtime.store.is_shared else INDEX_BYTES
        if not self._busy.locked() and self._grown > max(enough, INDEX_FACTOR * self._index_bytes):
            self._task = self._loop.create_task(self._or_fail(self._index_if_it_fits()))

    async def collect(self, retention: Retention | None = None) -> int:
        """Save an index and free what nobody needs; returns the bytes freed.

        Twice, because stores may keep all that the index before the last one needs.
        """
        retention = retention or self.retention
        return await self._index(retention) + await self._index(retention)

    async def save_last(self) -> None:
        """Save the index of a broker that stops."""
        if self._executor is not None:
            with contextlib.suppress(StoreFull):  # all is durable without it; the next start replays more
                await self._index(None)

    @asynccontextmanager
    async def capture(self) -> AsyncIterator[Capture]:
        """Give the present state, while everything goes on; the store keeps its messages until this is left."""
        runtime = self._runtime
        if self._capture is not None:
            raise Unavailable("a backup is being made already; wait for its end", key="backup")
        capture = self._capture = Capture(runtime.store)
        try:
            await runtime.writing.idle()  # its stages are not in the backup
            capture.take(runtime.now(), self._state())
            runtime.keeping.begin(capture.position)
            await runtime.confirm(Level.SYNC)
            with in_small_turns():
                yield capture
        finally:
            try:  # a thread may still be at work for somebody who waits no longer, and the loop does not wait for it
                await self._loop.run_in_executor(None, capture.end)
            finally:
                runtime.keeping.end()
                self._capture = None

    async def backup(self, path: str | os.PathLike[str], tell: Tell, *, verify: bool) -> int:
        """Write the present state to a file, while everything goes on; returns the size of the file."""
        async with self.capture() as capture:
            write = partial(write_backup, path, capture.parts(tell), verify=verify)
            return await self._loop.run_in_executor(None, write)

    def make_room(self) -> None:
        """Try to get room for new messages, again and again until there is some."""
        if self._executor is not None and self._makes_room is None:
            self._makes_room = self._loop.create_task(self._or_fail(self._make_room()))

    def tidy(self, now: float) -> None:
        """Do what the engine does now and then."""
        self._runtime.engine.tidy(now)

    async def _make_room(self) -> None:
        """Ask the store, which succeeds when others have freed some, and free what consumers have settled meanwhile.

        History that no reader waits for is given up then: without room to settle in, the broker would have to stop.
        """
        retention = Retention(0.0, 0, self.retention.reader_hold)
        is_due = True
        while not await self._loop.run_in_executor(self._executor, self._runtime.store.make_room):
            pause = ROOM_SECONDS
            if is_due or self._grown:
                is_due = True
                began = self._loop.time()
                with contextlib.suppress(StoreFull):
                    await self.collect(retention)
                    is_due = False
                    pause = self._loop.time() - began  # half of the time: whoever drains fast uses the reserve up fast
            await asyncio.sleep(pause)
        self._makes_room = None
        self._runtime.touch()

    async def _index_if_it_fits(self) -> None:
        try:
            await self._index(self.retention)
        except StoreFull:
            self._grown = 0  # no room for an index now: it is tried again when the log has grown as much once more

    async def _or_fail(self, work: Coroutine[None, None, None]) -> None:
        """Do work that nobody waits for; if it fails, the broker says so."""
        try:
            await work
        except StoreError as error:
            self._runtime.fail(error)
        except Exception as error:
            self._runtime.break_down(error)

    async def _index(self, retention: Retention | None) -> int:
        """Save an index of the present state, once the records that it covers are durable; collect unless None."""
        runtime = self._runtime
        async with self._busy:
            grown, position = self._grown, runtime.engine.effects.position
            state = self._state()
            await runtime.confirm(Level.SYNC)
            floor = None if retention is None else self._floor(runtime.now(), retention)
            freed = await self._loop.run_in_executor(self._executor, self._save, position, state, floor)
            if floor is not None and runtime.store.log is not None:
                runtime.engine.effects.departed.forget_before(runtime.store.log.start(position))
            self._grown -= grown
            return freed

    def _state(self) -> dict[str, object]:
        """Return the engine's state, while everybody waits."""
        with without_garbage():
            return snapshot.dump(self._runtime.engine)

    def _save(self, position: int, state: dict[str, object], floor: int | None) -> int:
        index = encoded(state)
        self._index_bytes = len(index)
        store = self._runtime.store
        store.save(position, index)
        return 0 if floor is None else store.collect(floor)

    def _floor(self, now: float, retention: Retention) -> int:
        """Return the position before which the log need not be kept as it was written."""
        runtime = self._runtime
        stretches = [
            LogStretch(stretch.first, stretch.last, stretch.bytes, stretch.newest)
            for stretch in runtime.store.stretches()
        ]
        return runtime.engine.readers.floor(stretches, runtime.engine.effects.position, now, retention)
