"""A broker somewhere else: the calls of the embedded one, over the network.

async with penstock.connect("penstock://host:8080") as broker:
    await broker.enqueue("orders", b"...")
    message = await broker.poll("orders", wait=5)
    await broker.complete(message)
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

from penstock.client.address import target_of
from penstock.client.operating import Operating
from penstock.client.requests import body_of, checked, level_of, post_of, texts_of
from penstock.client.session import Options, Session
from penstock.client.subscription import Subscription
from penstock.client.transaction import Transaction
from penstock.model.errors import BadRequest, NoObject, PenstockError
from penstock.model.names import checked_name
from penstock.model.publication import PRIORITY_DEFAULT, checked_priority
from penstock.model.receipt import Receipt
from penstock.model.settings import checked_seconds, checked_timeout
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import (
    CREDIT_DEFAULT,
    Batch,
    Delivery,
    Fail,
    Fetch,
    Finish,
    NoticeOf,
    Ok,
    Pop,
    Post,
    Reject,
    Release,
    StageName,
    Subscribe,
    Unsubscribe,
)
from penstock.protocols.native.often import written_finish, written_post

Confirm = Literal["ready", "write", "sync"]
Message = Delivery
Settling = TypeVar("Settling", Fail, Release, Reject)

#: Stages that come by themselves, in their order.
_EARLY = {"ready": 0, "write": 1, "sync": 2}
#: Names of queues that are known to be right; the next one makes it begin afresh.
_NAMES_MAX = 1000
#: Notices that wait to be asked for; after that the oldest are forgotten.
_NOTICES_MAX = 10_000


def connect(
    url: str,
    *,
    confirm: Confirm = "sync",
    connect_timeout: float = 10.0,
    resume_timeout: float = 60.0,
    keepalive: float = 15.0,
    tls: ssl.SSLContext | None = None,
) -> "Client":
    """Return a broker at `penstock://[user:secret@]host[:port][,host[:port]…]`; use it with `async with`.

    A lost connection is opened again, to the next host if there are several, and goes on as the same client, which the
    broker keeps for `resume_timeout` seconds. Leases of what is held are renewed every `keepalive` seconds, or three
    times in a `work_timeout` that is shorter. A post whose confirmation was lost is sent again: with a `dedup_id` it is
    stored once.
    """
    options = Options(
        checked_timeout(connect_timeout, "connect_timeout"),
        checked_seconds(resume_timeout, "resume_timeout"),
        checked_timeout(keepalive, "keepalive"),
    )
    return Client(url, options, confirm, tls)


class Client(Operating):
    """See the module, and `connect`."""

    def __init__(self, url: str, options: Options, confirm: Confirm, tls: ssl.SSLContext | None) -> None:
        self._target = target_of(url, tls)
        self._session = Session(self._target, options, self._take_notice)
        self._confirm = level_of(confirm, "sync")
        self._names: dict[str, bytes] = {}
        self._notices: deque[tuple[int, str]] = deque(maxlen=_NOTICES_MAX)
        self._has_notices = asyncio.Event()
        #: What callers want to be told, by the label that the broker knows.
        self._wanted: dict[int, _Wanted] = {}

    # Opening and closing.

    async def start(self) -> Self:
        """Connect, and begin."""
        await self._session.start()
        return self

    async def close(self) -> None:
        """Give back what is held, and end the connection."""
        await self._session.close()
        self._has_notices.set()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_healthy(self) -> bool:
        """Whether this client is open."""
        return self._session.is_open

    # Publishing.

    async def enqueue(
        self,
        queue: str,
        body: bytes,
        *,
        tags: Iterable[str] = (),
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        key: str | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
        notify: Iterable[str] = (),
        label: int = 0,
        confirm: Confirm | None = None,
    ) -> Receipt:
        """Publish a message to a queue, which is made if need be.

        With `notify`, and with another `confirm` than `sync`, the receipt has the sequence 0: notices do not tell it.
        """
        more = (tags, headers, delay, ttl, key, group, dedup_id, notify)
        if confirm is None and self._confirm == "sync" and more == ((), None, None, None, None, None, None, ()):
            number = self._session.next_label()
            name = self._name_of(queue)
            data = written_post(name, body_of(body), checked_priority(priority), number)
            return await self._posted(number, data)
        post = post_of(
            queue=queue, body=body, tags=tags, priority=priority, headers=headers, notify=notify, delay=delay, ttl=ttl,
            key=key, group=group, dedup_id=dedup_id,
        )  # fmt: skip
        return await self._post(post, label, confirm)

    async def enqueue_many(
        self,
        queue: str,
        bodies: Iterable[bytes],
        *,
        tags: Iterable[str] = (),
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        group: str | None = None,
        confirm: Confirm | None = None,
    ) -> list[Receipt]:
        """Publish many messages to a queue; returns when all are confirmed. One that is refused raises after the others."""
        if isinstance(bodies, str | bytes | bytearray | memoryview) or not isinstance(bodies, Iterable):
            raise BadRequest(f"bodies must be a list of bytes, not {type(bodies).__name__}", key="bodies")
        calls = [
            self.enqueue(
                queue,
                body,
                tags=tags,
                priority=priority,
                headers=headers,
                delay=delay,
                ttl=ttl,
                group=group,
                confirm=confirm,
            )
            for body in bodies
        ]
        return list(await asyncio.gather(*calls))

    async def publish(
        self,
        topic: str,
        body: bytes,
        *,
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        dedup_id: str | None = None,
        notify: Iterable[str] = (),
        label: int = 0,
        confirm: Confirm | None = None,
    ) -> Receipt:
        """Publish a message to a topic, which is made if need be."""
        post = post_of(
            topic=topic, body=body, priority=priority, headers=headers, notify=notify, delay=delay, ttl=ttl,
            dedup_id=dedup_id,
        )  # fmt: skip
        return await self._post(post, label, confirm)

    async def notices(self) -> AsyncIterator[tuple[int, str]]:
        """Yield label and stage of each notice that messages published here have asked for."""
        while True:
            while self._notices:
                yield self._notices.popleft()
            if not self._session.is_open:
                return
            self._has_notices.clear()
            await self._has_notices.wait()

    # Consuming.

    async def poll(
        self,
        queue: str,
        *,
        tags: Iterable[str] | None = None,
        match: str = "exact",
        wait: float = 0.0,
        work_timeout: float | None = None,
        selector: str | None = None,
        sync: Confirm = "ready",
    ) -> Message | None:
        """Return a message to work on, or None if there is none within `wait` seconds."""
        fetch = Fetch(
            queue=queue, block_timeout=wait, work_timeout=work_timeout, sync=sync, tags=_chosen(tags),
            match=match, selector=selector, label=self._session.next_label(),  # type: ignore[arg-type]  # checked below
        )  # fmt: skip
        return await self._taken(fetch)

    async def poll_many(
        self,
        queue: str,
        most: int,
        *,
        tags: Iterable[str] | None = None,
        match: str = "exact",
        wait: float = 0.0,
        work_timeout: float | None = None,
        sync: Confirm = "ready",
    ) -> list[Message]:
        """Return up to `most` messages: what is there, or the first that comes within `wait` seconds."""
        polls = [self.poll(queue, tags=tags, match=match, work_timeout=work_timeout, sync=sync) for _ in range(most)]
        messages = [message for message in await asyncio.gather(*polls) if message is not None]
        if not messages and wait:
            first = await self.poll(queue, tags=tags, match=match, wait=wait, work_timeout=work_timeout, sync=sync)
            return [] if first is None else [first]
        return messages

    async def pop(
        self,
        queue: str,
        *,
        tags: Iterable[str] | None = None,
        match: str = "exact",
        wait: float = 0.0,
        selector: str | None = None,
    ) -> Message | None:
        """Return a message that is settled by being returned, or None if there is none within `wait` seconds."""
        pop = Pop(
            queue=queue, timeout=wait, tags=_chosen(tags), match=match, selector=selector,  # type: ignore[arg-type]  # checked below
            label=self._session.next_label(),
        )  # fmt: skip
        return await self._taken(pop)

    def subscribe(
        self,
        queue: str | None = None,
        *,
        topic: str | None = None,
        tags: Iterable[str] | None = None,
        match: str = "exact",
        credit: int = CREDIT_DEFAULT,
        durable: str | None = None,
        from_seq: int | None = None,
        work_timeout: float | None = None,
        selector: str | None = None,
        exclusive: bool = False,
        sync: Confirm = "ready",
    ) -> Subscription:
        """Return messages as they come, `async for`; up to `credit` of them may be unsettled."""
        if exclusive:
            raise BadRequest("exclusive subscriptions cannot be had over the native protocol", key="exclusive")
        if (queue is None) == (topic is None):
            raise BadRequest("subscribe to a queue or to a topic, one of them", key="queue")
        request = Subscribe(
            queue=queue, topic=topic, tags=_chosen(tags), match=match, selector=selector, durable=durable,  # type: ignore[arg-type]  # checked below
            from_seq=from_seq, credit=credit, work_timeout=work_timeout, sync=sync, label=self._session.next_label(),
        )  # fmt: skip
        checked(request)
        self._session.hurry(work_timeout)
        return Subscription(self._session, request)

    async def unsubscribe(self, topic: str, durable: str) -> None:
        """Remove a durable subscriber of a topic, or of a pattern, for good."""
        await self._ask(Unsubscribe(topic=topic, durable=durable))

    # Settling.

    async def complete(self, message: Message, *, confirm: Confirm | None = None) -> bool:
        """Settle a message with success; returns whether that was late, after its lease had run out."""
        level = level_of(confirm, self._confirm)
        queue, label = _checked(message).queue, self._session.next_label()
        if queue is None:
            data = written(Finish(sequence=message.sequence, shard=message.shard, label=label, response=level))
        else:
            data = written_finish(self._name_of(queue), message.sequence, message.shard, label, level)
        self._session.forget(message)
        answer = await self._session.ask(label, data, level)
        return isinstance(answer, NoticeOf | Ok) and answer.late

    async def complete_many(self, messages: Iterable[Message], *, confirm: Confirm | None = None) -> None:
        """Settle messages with success, all or none."""
        level_of(confirm, self._confirm)
        async with self.transaction() as transaction:
            for message in messages:
                transaction.complete(_checked(message))

    async def fail(self, message: Message, *, reason: str = "", confirm: Confirm | None = None) -> None:
        """Count a failure: the message is retried, or dead-lettered after too many."""
        await self._settle(
            Fail(**_which(message), reason=reason),
            message,
            confirm,
        )

    async def release(self, message: Message, *, confirm: Confirm | None = None) -> None:
        """Let a message wait again without counting."""
        await self._settle(Release(**_which(message)), message, confirm)

    async def reject(self, message: Message, *, reason: str = "rejected", confirm: Confirm | None = None) -> None:
        """Dead-letter a message at once."""
        await self._settle(
            Reject(**_which(message), reason=reason),
            message,
            confirm,
        )

    async def fail_many(self, messages: Iterable[Message], *, reason: str = "", confirm: Confirm | None = None) -> None:
        """Count a failure of each message, all or none."""
        level_of(confirm, self._confirm)
        async with self.transaction() as transaction:
            for message in messages:
                transaction.fail(_checked(message), reason=reason)

    async def release_many(self, messages: Iterable[Message], *, confirm: Confirm | None = None) -> None:
        """Let messages wait again without counting, all or none."""
        level_of(confirm, self._confirm)
        async with self.transaction() as transaction:
            for message in messages:
                transaction.release(_checked(message))

    async def reject_many(
        self, messages: Iterable[Message], *, reason: str = "rejected", confirm: Confirm | None = None
    ) -> None:
        """Dead-letter messages at once, all or none."""
        level_of(confirm, self._confirm)
        async with self.transaction() as transaction:
            for message in messages:
                transaction.reject(_checked(message), reason=reason)

    def transaction(self) -> Transaction:
        """Return a transaction, to be used with `async with`: what is done in it happens at its end, all or nothing."""
        return Transaction(self._session)

    # Inside.

    async def _post(self, post: Post, label: int, confirm: Confirm | None) -> Receipt:
        level = level_of(confirm, self._confirm)
        post.label = self._session.next_label()
        if not post.notify and level == "sync":
            return await self._posted(post.label, written(post))
        if post.notify:
            wanted = self._wanted[post.label] = _Wanted(label, frozenset(post.notify))
            post.notify = (*post.notify, *wanted.ends)
        post.notify = tuple({*post.notify, level})
        try:
            return await self._posted(post.label, written(post), level)
        except PenstockError:
            self._wanted.pop(post.label, None)
            raise

    async def _posted(self, label: int, data: bytes, stage: str | None = None) -> Receipt:
        session = self._session
        if session.is_full:
            await session.drained()
        answer = await session.ask(label, data, stage)
        return Receipt(answer.shard, answer.sequence or 0) if isinstance(answer, Ok) else Receipt(0, 0)

    async def _taken(self, request: Fetch | Pop) -> Message | None:
        checked(request)
        if isinstance(request, Fetch):
            self._session.hurry(request.work_timeout)
        try:
            answer = await self._session.ask(request.label or 0, written(request))
        except NoObject:
            return await self._taken_from_new(request)
        return answer if isinstance(answer, Delivery) else None

    async def _taken_from_new(self, request: Fetch | Pop) -> Message | None:
        """Return the first message of a queue that is not there yet, or None if none comes in time."""
        if isinstance(request, Fetch):
            seconds, work_timeout, sync = request.block_timeout, request.work_timeout, request.sync
        else:
            seconds, work_timeout, sync = request.timeout, None, "ready"
        if not seconds:
            return None
        message: Message | None = None
        async with self.subscribe(
            request.queue, tags=request.tags, match=request.match, credit=1, work_timeout=work_timeout,
            selector=request.selector, sync=sync,
        ) as subscription:  # fmt: skip
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    message = await anext(subscription)
        if message is not None and isinstance(request, Pop):
            await self.complete(message, confirm="ready")
        return message

    async def _settle(self, request: Settling, message: Message, confirm: Confirm | None) -> None:
        level = level_of(confirm, self._confirm)
        label = self._session.next_label()
        if level == "ready":
            request.label = label
            data = written(request)
        else:
            data = written(Batch(requests=[request], label=label))
        self._session.forget(message)
        await self._session.ask(label, data)

    def _name_of(self, queue: str) -> bytes:
        """Return the name of a queue as it is written."""
        known = self._names.get(queue)
        if known is not None:
            return known
        name = checked_name(queue, "queue")
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        encoded = self._names[name] = name.encode()
        return encoded

    def _take_notice(self, label: int, stage: str) -> None:
        wanted = self._wanted.get(label)
        if wanted is None:
            return
        if wanted.is_for(stage):
            self._notices.append((wanted.label, stage))
            self._has_notices.set()
        if wanted.is_last(stage):
            del self._wanted[label]


class _Wanted(NamedTuple):
    """What a caller wants to be told of a message, and how it calls it."""

    label: int
    stages: frozenset[str]

    @property
    def ends(self) -> tuple[StageName, ...]:
        """What has to be told too, so that it is known when there is nothing more to tell."""
        return () if self.stages <= _EARLY.keys() else ("finish", "drop")

    def is_for(self, stage: str) -> bool:
        """Whether the caller hears of it; `finish` may come in place of `ready`."""
        return stage in self.stages or (stage == "finish" and not self.ends)

    def is_last(self, stage: str) -> bool:
        """Whether nothing follows that the caller wants to hear of."""
        if stage in {"finish", "drop"}:
            return True
        return not self.ends and _EARLY[stage] == max(_EARLY[one] for one in self.stages)


def _chosen(tags: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if tags is None else texts_of(tags, "tags")


def _checked(message: object) -> Message:
    if not isinstance(message, Delivery):
        raise BadRequest(f"this takes a message that was polled, not {message!r}", key="message")
    return message


def _which(message: object) -> dict[str, Any]:
    """Return what names a message."""
    known = _checked(message)
    return {"queue": known.queue, "sequence": known.sequence, "shard": known.shard}
