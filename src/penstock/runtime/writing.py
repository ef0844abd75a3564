"""Publishing what is staged: all rows of a batch or none, once, over restarts of the broker as well.

1. The rows of a batch lie in stages; what could be refused is refused before anything is decided.
2. The stages are synced, and the decision goes into the log, where the last batch of each query is remembered.
3. The rows are published frame by frame; each frame's rows and the record of how far they go are one batch of the log.
4. All is synced, and the stages are dropped.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engine.writes import Load, Write, prepare, publish
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest
from penstock.model.limits import Limits
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.publication import Publication, checked_body, size_of
from penstock.model.staged import StagedRow
from penstock.model.stages import Level
from penstock.runtime.stage_files import StageFiles
from penstock.runtime.staging import Staging

if TYPE_CHECKING:
    from penstock.runtime.runtime import Runtime

ROOM_SECONDS = 0.2  # between two looks whether there is room again

Channel = QueueKey | str


@dataclass(slots=True)
class Staged:
    """What a stage holds."""

    rows: int = 0
    loads: dict[Channel, Load] = field(default_factory=dict)


class Writing:
    """See the module."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.staging = Staging(runtime.store.stages or StageFiles(runtime.store.directory))
        #: The stages that were checked, so that they need not be read once more to be decided on.
        self._checked: dict[str, Staged] = {}
        #: The stages that somebody adds to just now, and how often each is just being read.
        self._growing: set[str] = set()
        self._reading: Counter[str] = Counter()
        #: The batches that are asked for, and the stages of those that were decided and are not published to their end.
        self._asked: list[Write] = []
        self._decided_stages: set[str] = set()
        #: By query: what is being published.
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Go on with what was decided before a restart."""
        unfinished = self._runtime.engine.writes.unfinished()
        self._decided_stages = {stage for write in unfinished for stage in write.stages}
        await asyncio.to_thread(self.staging.open, self._runtime.now(), self._decided_stages)
        for write in unfinished:
            self._run(write)

    async def stop(self) -> None:
        """Stop after the frame that is being published; the next start goes on from there."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.staging.close()

    async def idle(self) -> None:
        """Wait for a moment in which nothing that was decided is left to be published."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def append(self, stage: str, data: bytes) -> None:
        """Add bytes to a stage, until it is checked: what was looked at is what is published."""
        if stage in self._checked or self._reading[stage] or stage in self._growing or self._is_needed(stage):
            raise BadRequest(f"the stage {stage} is closed, or somebody else adds to it", key="stage")
        self._growing.add(stage)
        adding = asyncio.get_running_loop().run_in_executor(None, self.staging.append, stage, data)
        adding.add_done_callback(lambda _: self._growing.discard(stage))
        await asyncio.shield(adding)

    async def check(self, stage: str, access: Access) -> int:
        """Raise if a row of a stage would be refused; returns how many there are."""
        if stage in self._growing:
            raise BadRequest(f"the stage {stage} is not whole: somebody adds to it", key="stage")
        self._reading[stage] += 1
        try:
            staged = await asyncio.to_thread(self._read, stage)
            _check_access(staged, access)
            self._checked[stage] = staged
        finally:
            self._reading -= Counter([stage])
        return staged.rows

    async def give_up(self, stage: str) -> None:
        """Throw a stage away, unless a batch needs it: a driver that got no answer does not know what was decided."""
        if not self._is_needed(stage):
            await self.drop(stage)

    async def commit(self, write: Write, access: Access) -> Write:
        """Publish all rows of a batch, unless it was published before; returns the last batch of its query."""
        self._asked.append(write)
        try:
            decided = await self._decided(write, access)
        finally:
            self._asked.remove(write)
        if not decided.is_done:
            await asyncio.shield(self._run(decided))
        await self._runtime.confirm(Level.SYNC)
        left_over = await asyncio.to_thread(self.staging.of_query, write.query, write.batch)
        for stage in {*write.stages, *left_over}:
            await self.drop(stage)
        return decided

    async def drop(self, stage: str) -> None:
        """Throw a stage away."""
        self._checked.pop(stage, None)
        await asyncio.to_thread(self.staging.drop, [stage])

    def _is_needed(self, stage: str) -> bool:
        return stage in self._decided_stages or any(stage in write.stages for write in self._asked)

    # Deciding.

    async def _decided(self, write: Write, access: Access) -> Write:
        runtime, writes = self._runtime, self._runtime.engine.writes
        known = writes.known(write.query, write.batch)
        if known is not None:
            return known
        loads = await self._ready(write, access)
        while (running := self._running.get(write.query)) is not None:
            await asyncio.shield(running)
        known = writes.known(write.query, write.batch)
        if known is not None:  # decided meanwhile, by a driver that was thought dead
            return known
        runtime.check_room()
        prepare(runtime.engine.channels, loads, runtime.now())
        writes.begin(write, runtime.now())
        self._decided_stages.update(write.stages)
        runtime.touch()
        return write

    async def _ready(self, write: Write, access: Access) -> dict[Channel, Load]:
        """Return what a batch brings into which channel, once all of it is on disk."""
        loads: dict[Channel, Load] = {}
        rows = 0
        for stage in write.stages:
            if stage not in self._checked:
                await self.check(stage, access)
            staged = self._checked[stage]
            _check_access(staged, access)
            rows += staged.rows
            for channel, load in staged.loads.items():
                total = loads.setdefault(channel, Load())
                total.messages += load.messages
                total.bytes += load.bytes
        if rows != write.rows:
            raise BadRequest(
                f"the stages hold {rows} rows, and {write.rows} were written; run the batch again", key="stages"
            )
        await asyncio.to_thread(self.staging.sync, write.stages)
        return loads

    def _read(self, stage: str) -> Staged:
        """Read a stage as if it were published."""
        found = Staged()
        limits, channel_of = self._runtime.engine.limits, Channels()
        for rows in self.staging.frames([stage]):
            found.rows += len(rows)
            for row in rows:
                load = found.loads.setdefault(channel_of(row), Load())
                attributes = attributes_of(row, 0.0, limits)
                load.messages += 1
                load.bytes += size_of((0, 0, 0.0, 0, 0, 0, attributes, checked_body(row.body, limits)))
        return found

    # Publishing.

    def _run(self, write: Write) -> "asyncio.Task[None]":
        """Publish what is left of a batch, beside everything else."""
        task = self._running.get(write.query)
        if task is None:
            task = self._running[write.query] = asyncio.get_running_loop().create_task(self._publish(write))
            task.add_done_callback(partial(self._ended, write.query))
        return task

    def _ended(self, query: str, task: "asyncio.Task[None]") -> None:
        del self._running[query]
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"a batch of the query {query} is not published to its end", "exception": error}
            task.get_loop().call_exception_handler(context)

    async def _publish(self, write: Write) -> None:
        skipped = write.published
        frames = self.staging.frames(write.stages)
        while (rows := await asyncio.to_thread(next, frames, None)) is not None:
            if skipped >= len(rows):
                skipped -= len(rows)
                continue
            while not self._runtime.has_room:  # noqa: ASYNC110  # stores are asked for room, they do not tell
                await asyncio.sleep(ROOM_SECONDS)
            self._publish_rows(write, rows[skipped:])
            skipped = 0
            if self._runtime.is_behind():
                await self._runtime.confirm(Level.READY)
        await self._runtime.confirm(Level.SYNC)
        self._decided_stages.difference_update(write.stages)
        await asyncio.to_thread(self.staging.drop, write.stages)

    def _publish_rows(self, write: Write, rows: list[StagedRow]) -> None:
        """Publish some rows; what is recorded in one go is one batch of the log."""
        runtime = self._runtime
        engine, now, channel_of = runtime.engine, runtime.now(), Channels()
        runtime.check()
        for row in rows:
            attributes = attributes_of(row, now, engine.limits)
            publish(engine.channels, channel_of(row), row.body, now, row.priority, attributes)
        engine.writes.went_on(write, len(rows), now)
        runtime.touch(sum(len(row.body) for row in rows))


def _check_access(staged: Staged, access: Access) -> None:
    for channel in staged.loads:
        access.check(Action.PUBLISH, channel if isinstance(channel, str) else channel.name)


class Channels:
    """Which channel a row names; most rows name one that was named before."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str | None, tuple[str, ...]], Channel] = {}

    def __call__(self, row: StagedRow) -> Channel:
        """Return the channel of a row."""
        named = row.queue, row.topic, tuple(row.tags or ())
        channel = self._known.get(named)
        if channel is None:
            channel = self._known[named] = _channel(*named)
        return channel


def _channel(queue: str | None, topic: str | None, tags: tuple[str, ...]) -> Channel:
    if (queue is None) == (topic is None):
        raise BadRequest("a row names either a queue or a topic", key="queue")
    if topic is None:
        return QueueKey(checked_name(queue, "queue"), checked_tags(tags))
    if tags:
        raise BadRequest("a topic has no tags", key="tags")
    return checked_name(topic, "topic")


def attributes_of(row: StagedRow, now: float, limits: Limits) -> dict[int, Any] | None:
    """Return the attributes of the publish record of a row, checked."""
    publication = Publication(
        row.priority, row.headers, row.delay, row.ttl, row.key, row.group, row.dedup_id
    )  # fmt: skip
    return publication.attributes(now, limits)
