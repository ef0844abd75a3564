"""What an operator does with a broker: queues and topics, looking, redriving, collecting.

`Administration` is the part of the embedded broker that does not touch single messages; `Broker` adds the rest.
"""

import asyncio
import os
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Self

from penstock.engine import inspection
from penstock.engine.clients import Client
from penstock.engine.effects import Notice
from penstock.engine.inspection import Peeked, QueueStatus, TopicStatus
from penstock.model.errors import BadRequest, Unavailable
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.selector import parse
from penstock.model.settings import checked_count
from penstock.model.stages import Level, checked_level
from penstock.runtime.backup import Tell, tell_nobody
from penstock.runtime.runtime import BACKLOG_BYTES, Runtime
from penstock.store.locate import checked_path

Confirm = Literal["ready", "write", "sync"]


class Administration:
    """See the module."""

    def __init__(self, runtime: Runtime, confirm: Confirm, restore: str | os.PathLike[str] | None = None) -> None:
        self._runtime = runtime
        self._restore = None if restore is None else checked_path(restore, "restore")
        self._engine = runtime.engine
        self._queues = runtime.engine.channels.queues
        self._limits = runtime.engine.limits
        self._confirm = self._level(confirm)
        self._client: Client | None = None
        self._notices: deque[Notice] = deque(maxlen=self._limits.missed_notices_max)
        self._has_notices = asyncio.Event()
        self._is_closed = False

    # Opening and closing.

    async def start(self) -> Self:
        """Recover what the store holds, and begin."""
        if self._client is not None:
            raise Unavailable("this broker was started already; open another", key="broker")
        await self._runtime.start(self._restore)
        self._client = self._engine.clients.connect(self._runtime.now(), secrets.token_bytes(16))
        self._client.on_notice = self._take_notice
        self._runtime.watch(self._has_notices.set)
        self._runtime.touch()
        return self

    async def close(self) -> None:
        """Release what is held, make everything durable, and let go of the store."""
        if self._client is None:
            return
        if self._is_closed:
            await self._runtime.has_let_go.wait()
            return
        self._runtime.check_running()
        self._is_closed = self._runtime.is_stopping = True
        if self._runtime.failure is None:
            self._engine.clients.leave(self._client, self._runtime.now())
            self._runtime.wake_all()
        await self._runtime.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_healthy(self) -> bool:
        """Whether the broker can still promise anything."""
        return self._client is not None and not self._is_closed and self._runtime.failure is None

    @property
    def notes(self) -> list[str]:
        """Sentences about what recovery had to do."""
        return self._runtime.restored.notes

    # Queues and topics.

    async def create_queue(
        self, queue: str, *, tags: Iterable[str] = (), exclusive: bool = False, **settings: Any
    ) -> None:
        """Make a queue; one that exists is left as it is, unless it is to be made exclusively."""
        key = key_of(queue, tags)
        now = self._now()
        self._engine.channels.create_queue(key, now, settings, exclusive=exclusive)
        await self._recorded(None)

    async def alter_queue(self, queue: str, *, tags: Iterable[str] = (), **settings: Any) -> None:
        """Change settings of a queue."""
        self._engine.alter(key_of(queue, tags), self._now(), settings)
        await self._recorded(None)

    async def pause_queue(self, queue: str, *, tags: Iterable[str] = ()) -> None:
        """Hand nothing out, also after a restart."""
        await self.alter_queue(queue, tags=tags, paused=True)

    async def resume_queue(self, queue: str, *, tags: Iterable[str] = ()) -> None:
        """Hand messages out again."""
        await self.alter_queue(queue, tags=tags, paused=False)

    async def delete_queue(self, queue: str, *, tags: Iterable[str] = ()) -> int:
        """Delete a queue with all that is in it; returns how many messages that were."""
        deleted = self._engine.delete(key_of(queue, tags), self._now())
        await self._recorded(None)
        return deleted

    async def purge_queue(self, queue: str, *, tags: Iterable[str] = ()) -> int:
        """Drop all that waits in a queue; returns how many messages that were."""
        channels, now = self._engine.channels, self._now()
        purged = channels.purge_queue(channels.queue(key_of(queue, tags)), now)
        await self._recorded(None)
        return purged

    async def create_topic(self, topic: str, *, exclusive: bool = False, **settings: Any) -> None:
        """Make a topic; one that exists is left as it is, unless it is to be made exclusively."""
        name = checked_name(topic, "topic")
        self._engine.channels.create_topic(name, self._now(), settings, exclusive=exclusive)
        await self._recorded(None)

    async def alter_topic(self, topic: str, **settings: Any) -> None:
        """Change settings of a topic."""
        channels, now = self._engine.channels, self._now()
        channels.alter_topic(channels.topic(checked_name(topic, "topic")), now, settings)
        await self._recorded(None)

    async def delete_topic(self, topic: str) -> int:
        """Delete a topic with its subscribers; returns how many messages it kept."""
        now = self._now()
        deleted = self._engine.subscriptions.delete_topic(
            self._engine.channels.topic(checked_name(topic, "topic")), now
        )
        await self._recorded(None)
        return deleted

    # Looking.

    async def status(self, queue: str, *, tags: Iterable[str] = ()) -> QueueStatus:
        """Return the state of a queue."""
        now = self._now()
        found = self._engine.channels.queue(key_of(queue, tags))
        return inspection.queue_status(found, self._queues, now, self._engine.clients.by_number)

    async def topic_status(self, topic: str) -> TopicStatus:
        """Return the state of a topic."""
        self._now()
        found = self._engine.channels.topic(checked_name(topic, "topic"))
        return inspection.topic_status(found, self._engine.clients.by_number)

    async def queues(self) -> list[QueueStatus]:
        """Return the state of every queue."""
        clients, now = self._engine.clients.by_number, self._now()
        return [inspection.queue_status(queue, self._queues, now, clients) for queue in self._queues.values()]

    async def topics(self) -> list[TopicStatus]:
        """Return the state of every topic."""
        self._now()
        topics = self._engine.channels.topics.values()
        return [inspection.topic_status(topic, self._engine.clients.by_number) for topic in topics]

    async def peek(self, queue: str, *, tags: Iterable[str] = (), offset: int = 0, limit: int = 10) -> list[Peeked]:
        """Return messages of a queue in their order, then delayed and assigned ones, without touching them."""
        self._now()
        found = self._engine.channels.queue(key_of(queue, tags))
        return inspection.peek(found, checked_count(offset, "offset", 0), checked_count(limit, "limit", 0))

    async def notices(self) -> AsyncIterator[tuple[int, str]]:
        """Yield label and stage of each notice that messages published here have asked for.

        As many as `missed_notices_max` wait to be asked for; after that the oldest are forgotten.
        It ends when the broker is closed.
        """
        self._now()
        while True:
            while self._notices:
                notice = self._notices.popleft()
                yield notice.label, str(notice.stage.name).lower()
            if self._runtime.is_stopped:
                return
            self._runtime.check()
            self._has_notices.clear()
            await self._has_notices.wait()

    # Operating.

    async def redrive(
        self,
        queue: str,
        *,
        tags: Iterable[str] = (),
        limit: int = 1000,
        selector: str | None = None,
        target: str | None = None,
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Publish dead letters again where they came from, or to the queue `target` of the same tags.

        Returns how many were moved, or would be, and how many were passed over.
        """
        key = key_of(queue, tags)
        wanted = self._selector(selector)
        self._runtime.check_room()
        moved = self._engine.dead_letters.redrive(
            self._engine.channels.queue(key),
            self._now(),
            limit=checked_count(limit, "limit"),
            wanted=wanted,
            target=None if target is None else QueueKey(checked_name(target, "target"), key.tags),
            dry_run=dry_run,
        )
        await self._recorded(None)
        return moved

    async def backup(self, path: str | os.PathLike[str], *, tell: Tell = tell_nobody, verify: bool = True) -> int:
        """Write all unsettled messages, settings and cursors to a file, consistent as of now; returns its size.

        Settled history is not part of it. `Broker.open(..., restore="file")` starts an empty store from it.
        `tell` is called by a thread with the bytes and messages that are done, and how many messages there are;
        `verify` reads the file again before it gets its name.
        """
        self._now()
        return await self._runtime.upkeep.backup(checked_path(path, "path"), tell, verify=verify)

    async def collect(self) -> int:
        """Free the disk space of what nobody needs any more, now; returns the bytes freed."""
        self._now()
        return await self._runtime.upkeep.collect()

    # Inside.

    @property
    def _me(self) -> Client:
        if self._client is None or self._is_closed:
            raise _not_open()
        return self._client

    def _now(self) -> float:
        """Return the time, if anything may be done at all."""
        runtime = self._runtime
        now = runtime.now()
        if runtime.failure is not None and not self._is_closed:
            runtime.check()
        if self._client is None or self._is_closed:
            raise _not_open()
        runtime.check_running()
        return now

    def _take_notice(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._has_notices.set()

    def _now_to_publish(self) -> float:
        """Return the time, if messages can be accepted."""
        now = self._now()
        if not self._runtime.has_room or self._runtime.backlog_bytes > BACKLOG_BYTES:
            self._runtime.check_room()
        return now

    def _level(self, confirm: object, key: str = "confirm") -> Level:
        level = checked_level(confirm, key)
        return level if self._runtime.store.durable else Level.READY

    def _selector(self, selector: object) -> Callable[[Any], bool] | None:
        if selector is None:
            return None
        if not isinstance(selector, str):
            raise BadRequest(f"selector must be a text, not {selector!r}", key="selector")
        return self._engine.selected_by(parse(selector).matches)

    async def _recorded(self, confirm: object) -> None:
        """Wait until what was recorded is as durable as asked for."""
        level = self._confirm if confirm is None else self._level(confirm)
        if self._runtime.touch() or level is not Level.READY:
            await self._runtime.confirm(level)


def key_of(name: object, tags: object) -> QueueKey:
    """Return the key of the queue that is named."""
    return QueueKey(checked_name(name, "queue"), checked_tags(tags))


def _not_open() -> Unavailable:
    return Unavailable("this broker is not open; use it inside `async with Broker.open(...)`", key="broker")
