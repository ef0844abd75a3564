"""The runtime: runs an engine on an event loop, one wake-up at a time.

Whoever calls the engine calls `touch` afterwards. At the end of the wake-up all of it is handled together: messages
are handed out, each consumer is told once, and what was recorded goes to the store as one batch.
"""

import asyncio
import os
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from penstock.engine.consumers import Consumer
from penstock.engine.engine import Engine
from penstock.engine.readers import Retention
from penstock.model.errors import PenstockError, StoreError, StoreFailed, Unavailable
from penstock.model.limits import Limits
from penstock.model.records import Kind, Record
from penstock.model.stages import Level, Stage
from penstock.runtime.clock import Clock
from penstock.runtime.commits import Commit, Committer
from penstock.runtime.keeping import Keeping
from penstock.runtime.recovery import Restored, restore
from penstock.runtime.upkeep import Upkeep
from penstock.runtime.writing import Writing
from penstock.store.port import Store

#: Handed out before others get their turn, which is a few milliseconds; with fewer, publishers to topics run ahead.
DISPATCH_MESSAGES = 3000
SWEEP_MESSAGES = 500  # expired or come due before other connections get their turn: a few milliseconds
SWEEP_SECONDS = 1.0
SWEEP_SECONDS_MIN = 0.005  # leases end in clusters; one sweep serves many
BACKLOG_RECORDS = 4096  # not yet handed to the store, before a caller who waits for nothing is held back
BACKLOG_BYTES = 8 * 2**20
COMMIT_BYTES = 2**30  # bodies not yet handed to the store, before more is refused: a batch has at most twice as much
SEAL_SECONDS = 0.05  # without work, before the store is asked to seal what it has


class Runtime:
    """See the module."""

    def __init__(
        self, store: Store, *, limits: Limits, auto_create: bool, retention: Retention, clock: Clock | None = None
    ) -> None:
        self.store = store
        self.clock = clock or Clock()
        self.now: Callable[[], float] = self._now_while_ours if store.is_shared else self.clock.now
        self.engine = Engine(recall=self._recall if store.recalls else None, limits=limits, auto_create=auto_create)
        #: Why nothing is promised any more.
        self.failure: StoreError | None = None
        self.has_room = True
        self.restored = Restored()
        self._effects = self.engine.effects
        self._loop: AbstractEventLoop
        self._committer: Committer | None = None
        self.upkeep = Upkeep(self, retention)
        self.writing = Writing(self)
        self._in_flight: Commit | None = None
        #: Who waits for what is recorded but not submitted yet.
        self._written: list[Future[None]] = []
        self._synced: list[Future[None]] = []
        self._after_write: list[Callable[[], None]] = []
        self._after_sync: list[Callable[[], None]] = []
        self._held_back: deque[Future[None]] = deque()
        self.keeping = Keeping()
        self._waiting: dict[Callable[[], None], None] = {}
        self._is_scheduled = False
        self.is_stopping = self.is_stopped = False
        self.has_let_go = asyncio.Event()
        #: Of the bodies that were not handed to the store yet.
        self.backlog_bytes = 0
        self._sweep_at = 0.0
        self._sweep_timer: TimerHandle | None = None
        self._seal_timer: TimerHandle | None = None

    # Starting and stopping.

    async def start(self, backup: str | os.PathLike[str] | None = None) -> None:
        """Recover from the store, or fill it from a backup, and begin."""
        self._loop = asyncio.get_running_loop()
        recover = partial(restore, self.store, self.engine, self.now(), backup)
        recovering = self._loop.run_in_executor(None, recover)
        try:
            self.restored = await asyncio.shield(recovering)
        except asyncio.CancelledError:
            recovering.add_done_callback(self._close_if_opened)
            raise
        if self.store.durable:
            self._committer = Committer(self.store, self._loop, self._on_write, self._on_sync)
        self.upkeep.start(self._loop)
        self._sweep_at = self.now() + SWEEP_SECONDS
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self.touch()
        try:
            await self.confirm(Level.SYNC)  # the reserved positions must be on disk before the first is used
            await self.writing.start()
        except BaseException:
            await self._let_go()
            raise

    def _close_if_opened(self, recovering: "Future[Restored]") -> None:
        """Let go of a store that was opened for somebody who no longer waits for it."""
        if not recovering.cancelled() and recovering.exception() is None:
            self.store.close()

    async def stop(self) -> None:
        """Make everything durable, leave an index, and let go of the store."""
        try:
            await self.writing.stop()
            if self.failure is None:
                self._effects.reserved = self._effects.position + 1
                self._effects.note(Kind.RESERVE, self.now(), subject=self._effects.reserved)
                while self._effects.records or self._in_flight is not None:
                    self.touch()
                    await self.confirm(Level.SYNC)
                await self.upkeep.save_last()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        """End all threads and timers, and let go of the store, even if who waits for that is cancelled."""
        self.is_stopped = True
        for timer in (self._sweep_timer, self._seal_timer):
            if timer is not None:
                timer.cancel()
        self.upkeep.cancel()
        self.wake_all()
        closing = self._loop.run_in_executor(None, self._close)
        closing.add_done_callback(lambda _: self.has_let_go.set())
        await asyncio.shield(closing)

    def _close(self) -> None:
        self.upkeep.stop()
        if self._committer is not None:
            if self.failure is None:
                self._committer.seal()
            self._committer.stop()
        self.store.close()

    # The way of a call: check, call the engine, touch, wait.

    def check_room(self) -> None:
        """Raise if no message can be accepted now."""
        if self.failure is not None:
            raise self._unavailable()
        if self.backlog_bytes > COMMIT_BYTES:
            raise Unavailable(
                f"{self.backlog_bytes} bytes wait to be written, and more at a time cannot be; try again soon",
                key="store",
                size=self.backlog_bytes,
                limit=COMMIT_BYTES,
            )
        if not self.has_room:
            raise Unavailable(
                "the disk is full: no room for a new segment can be had; new messages are refused until there is, "
                "settling goes on",
                key="disk",
            )

    def check(self) -> None:
        """Raise if nothing can be recorded any more."""
        self.now()  # which finds out that the store is somebody else's
        if self.failure is not None:
            raise self._unavailable()

    def check_running(self) -> None:
        """Raise if the broker is closing, closed, or asked from another event loop than its own."""
        if self.is_stopping:
            raise Unavailable("this broker is closed; open another", key="broker")
        if not self.is_here():
            raise Unavailable(
                "this broker was opened on another event loop; call it from there, or use penstock.sync.Broker",
                key="broker",
            )

    def is_here(self) -> bool:
        """Tell whether this is called from the broker's own event loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def touch(self, size: int = 0) -> bool:
        """Take note that the engine was called, with a body of `size` bytes; returns whether the store is behind."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)
        self.backlog_bytes += size
        return self.is_behind()

    def is_behind(self) -> bool:
        """Tell whether the store is so far behind that whoever publishes should wait."""
        return len(self._effects.records) > BACKLOG_RECORDS or self.backlog_bytes > BACKLOG_BYTES

    async def confirm(self, level: Level) -> None:
        """Wait until all that was recorded so far is persisted as far as `level`; for `ready`, let the store catch up."""
        self.check()
        if level is Level.READY or self._committer is None:
            await self._wait_for_commit()
            return
        future = self._loop.create_future()
        if self._effects.records:
            (self._synced if level is Level.SYNC else self._written).append(future)
        elif self._in_flight is not None:
            self._in_flight.synced.append(future)
        else:
            return
        await future

    def after(self, level: Level, action: Callable[[], None]) -> None:
        """Call `action` when all that was recorded so far is persisted as far as `level`."""
        if level is Level.READY or self._committer is None:
            action()
        elif self._effects.records:
            (self._after_sync if level is Level.SYNC else self._after_write).append(action)
        elif self._in_flight is not None:
            self._in_flight.after_sync.append(action)
        else:
            action()

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` when this wake-up is over."""
        self._loop.call_soon(action)

    @property
    def durable_end(self) -> int:
        """The position before which all that was recorded is on disk."""
        return self._effects.first if self._in_flight is None else self._in_flight.first

    # Wake-ups.

    def _flush(self) -> None:
        """Handle all that has happened in this wake-up."""
        self._is_scheduled = False
        now = self.now()
        if self.failure is not None or self.is_stopped:
            return
        more = self._guard(self.engine.dispatch, now, DISPATCH_MESSAGES)
        self._deliver()
        if more:
            self.touch()
        self._arm(now)
        if self._in_flight is None:
            if self._effects.records:
                self._start_commit()
            else:
                self.backlog_bytes = 0  # of messages that were known already
        self.has_room = self.store.has_room()
        if not self.has_room:
            self.upkeep.make_room()

    def _deliver(self) -> None:
        if self._effects.early:
            early, self._effects.early = self._effects.early, []
            self.engine.clients.deliver(early)
        touched, self._effects.touched = self._effects.touched, {}
        for consumer in touched:
            if consumer.level is Level.READY:
                self._call(consumer.on_ready, consumer)
            else:
                self.after(consumer.level, partial(_hand_over, consumer, consumer.taken + len(consumer.inbox)))

    def _call(self, action: Callable[..., None], *arguments: object) -> None:
        """Call somebody back; what goes wrong there is shown, and keeps nobody else waiting."""
        try:
            action(*arguments)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a call back of the broker failed", "exception": error})

    def _start_commit(self) -> None:
        commit = self._take_commit()
        if self._committer is not None:
            self._in_flight = commit
            self._committer.submit(commit)

    def _take_commit(self) -> Commit:
        self.backlog_bytes = 0
        commit = Commit(*self._effects.take(self.now()))
        self.upkeep.count(commit)
        commit.written, self._written = self._written, []
        commit.synced, self._synced = self._synced, []
        commit.after_write, self._after_write = self._after_write, []
        commit.after_sync, self._after_sync = self._after_sync, []
        commit.gone = self.keeping.sift(commit.gone)
        if self._committer is None:
            self.store.write(commit.first, commit.records, commit.gone)
            self._on_write(commit)
            self._tell_synced(commit)
        return commit

    def _on_write(self, commit: Commit) -> None:
        if self.failure is not None:
            return
        if commit.to_persist:
            self.engine.clients.deliver(commit.persisted(Stage.WRITE))
        for future in commit.written:
            if not future.done():
                future.set_result(None)
        for action in commit.after_write:
            self._call(action)

    def _tell_synced(self, commit: Commit) -> None:
        if commit.to_persist:
            self.engine.clients.deliver(commit.persisted(Stage.SYNC))
        for future in commit.synced:
            if not future.done():
                future.set_result(None)
        for action in commit.after_sync:
            self._call(action)
        self.engine.clients.deliver(commit.notices)

    def _on_sync(self, commit: Commit) -> None:
        if commit.error is not None:
            self.fail(commit.error, commit)
            return
        if self.failure is not None:
            return  # a message could not be read back meanwhile: what the engine was in the middle of must not be stored
        self._in_flight = None
        self._tell_synced(commit)
        self.upkeep.committed(commit)
        while self._held_back:
            future = self._held_back.popleft()
            if not future.done():
                future.set_result(None)
        if self._effects.records:
            self._start_commit()
        elif self._seal_timer is None:
            self._seal_timer = self._loop.call_later(SEAL_SECONDS, self._seal)

    def _seal(self) -> None:
        self._seal_timer = None
        if self._in_flight is None and self._committer is not None and self.failure is None:
            self._committer.seal()

    async def _wait_for_commit(self) -> None:
        """Hold a caller back until the store has caught up a little."""
        if self._committer is None or (self._in_flight is None and not self._effects.records):
            await asyncio.sleep(0)
            return
        future = self._loop.create_future()
        self._held_back.append(future)
        self.touch()
        await future

    # Time.

    def _now_while_ours(self) -> float:
        """Return the time, once it is sure that nobody else writes to the store; else promise nothing from now on."""
        if self.failure is None:
            try:
                self.store.check()
            except StoreError as error:
                self.fail(error)
        return self.clock.now()

    def _arm(self, now: float) -> None:
        """See that the sweeper comes when something becomes due before its next round."""
        due = self.engine.next_time()
        if due is not None and due < self._sweep_at and self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_at = max(due, now + SWEEP_SECONDS_MIN)
            self._sweep_timer = self._loop.call_later(self._sweep_at - now, self._sweep)

    def _sweep(self) -> None:
        now = self.now()
        if self.failure is not None or self.is_stopped:
            return
        more = self._guard(self.engine.sweep, now, SWEEP_MESSAGES)
        if not more:
            self.upkeep.tidy(now)
        self.touch()
        wait = 0.0 if more else SWEEP_SECONDS
        self._sweep_at = now + wait
        self._sweep_timer = self._loop.call_later(wait, self._sweep)

    # Failure.

    def fail(self, error: StoreError, commit: Commit | None = None) -> None:
        """Promise nothing from now on; whoever waits is told."""
        if self.failure is None:
            self.failure = error
        waiting = [*self._written, *self._synced, *self._held_back]
        for one in (commit, self._in_flight):
            if one is not None:
                waiting += [*one.written, *one.synced]
        for future in waiting:
            if not future.done():
                future.set_exception(self._unavailable())
        self.wake_all()
        self._written, self._synced = [], []
        self._held_back.clear()
        self._in_flight = None

    def wake_all(self) -> None:
        """Let all who wait for messages look whether there will be any."""
        for tell in list(self._waiting):
            self._call(tell)

    def watch(self, tell: Callable[[], None]) -> None:
        """Call this when the broker fails or closes."""
        self._waiting[tell] = None

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Call it no more."""
        self._waiting.pop(tell, None)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call this at the next wake-up, from whatever thread, unless the loop is gone."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    def _guard(self, action: Callable[[float, int], bool], now: float, limit: int) -> bool:
        """Run a part of the wake-up in which the store may be read; a failure of it ends all promises."""
        try:
            return action(now, limit)
        except StoreError as error:
            self.fail(error)
        except Exception as error:  # of the engine: what it was in the middle of must not be stored
            self.break_down(error)
        return False

    def break_down(self, error: Exception) -> None:
        """Promise nothing after an error that nobody has foreseen, and show where it came from."""
        failed = StoreFailed("the broker has broken down by a mistake of its own; its log has more", key="broker")
        failed.__cause__ = error
        self.fail(failed)
        self._loop.call_exception_handler({"message": "the broker has broken down", "exception": error})

    def _unavailable(self) -> StoreFailed:
        data = self.failure.data if self.failure is not None else {}
        return StoreFailed(f"the broker has stopped: {self.failure}", **{"key": "store", "cause": self.failure, **data})

    # Records.

    def _recall(self, sequences: Sequence[int]) -> list[Record]:
        """Give the engine records back, from memory if they are not in the store yet."""
        in_flight = self._in_flight
        boundary = in_flight.first if in_flight is not None else self._effects.first
        if sequences[-1] < boundary and sequences[0] < boundary:
            return self._recall_written(sequences)
        written = [sequence for sequence in sequences if sequence < boundary]
        records = {record[3]: record for record in self._recall_written(written)} if written else {}
        for sequence in sequences:
            if sequence >= self._effects.first:
                records[sequence] = self._effects.records[sequence - self._effects.first]
            elif sequence >= boundary and in_flight is not None:
                records[sequence] = in_flight.records[sequence - in_flight.first]
        return [records[sequence] for sequence in sequences]

    def _recall_written(self, sequences: Sequence[int]) -> list[Record]:
        try:
            return self.store.recall(sequences)
        except PenstockError as error:
            # The engine was interrupted in the middle of something, and what it asks for must be there.
            failed = StoreFailed(f"a message could not be read back: {error}", key="store")
            self.fail(failed)
            raise failed from error


def _hand_over(consumer: Consumer, due: int) -> None:
    """Tell a consumer that so many of the messages it was ever given may be taken out of its inbox."""
    consumer.due = due
    consumer.on_ready(consumer)
