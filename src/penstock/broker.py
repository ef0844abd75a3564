"""The broker in your own process: queues and topics as method calls, with no server and no socket.

    async with Broker.open("data") as broker:
        await broker.enqueue("orders", b"...")
        message = await broker.poll("orders", wait=5)
        await broker.complete(message)

Methods that change something return when that is as durable as `confirm` says: `sync` unless told otherwise.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

from penstock.engine.consumers import OWN_LEASE, Consumer, ignore
from penstock.engine.queue import Queue
from penstock.engine.readers import Retention
from penstock.engine.selection import Selection
from penstock.engine.transactions import Outcome, Publish, Settle, settle
from penstock.model.errors import BadRequest
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.names import NO_TAGS, checked_name
from penstock.model.publication import (
    PRIORITY_DEFAULT,
    Publication,
    checked_bodies,
    checked_body,
    checked_priority,
    checked_reason,
)
from penstock.model.receipt import Receipt
from penstock.model.settings import checked_count, checked_flag, checked_seconds, checked_timeout
from penstock.model.stages import Level, checked_stages
from penstock.runtime.administration import Administration, Confirm, key_of
from penstock.runtime.runtime import Runtime
from penstock.runtime.subscription import Subscription, release, wait_for_one
from penstock.runtime.transaction import Transaction
from penstock.store.locate import store_at
from penstock.store.port import Store

CREDIT_DEFAULT = 256

Where = str | os.PathLike[str] | Store


class Broker(Administration):
    """See the module."""

    # Opening and closing.

    @classmethod
    def open(
        cls,
        where: Where,
        *,
        confirm: Confirm = "sync",
        auto_create: bool = True,
        retain_log: tuple[float, int] = (86400.0, 2**30),
        reader_hold: int = 10 * 2**30,
        limits: Limits | None = None,
        restore: str | os.PathLike[str] | None = None,
        **store_options: Any,
    ) -> Self:
        """Return a broker on a directory, on `memory:`, or on a store of your own; use it with `async with`.

        `confirm` is what methods wait for unless they are told otherwise. `auto_create`: publishing to a missing queue
        or topic makes it. `retain_log` keeps settled history for so many seconds and bytes, whichever is less.
        `restore` names a backup from which an empty store is filled first.
        Further options go to the store, such as `segment_bytes` or `salvage` of a journal.
        """
        if not isinstance(retain_log, tuple | list) or len(retain_log) != 2:
            raise BadRequest(f"retain_log must be seconds and bytes, not {retain_log!r}", key="retain_log")
        if limits is not None and not isinstance(limits, Limits):
            raise BadRequest(f"limits must be penstock.Limits, not {limits!r}", key="limits")
        checked_flag(auto_create, "auto_create")
        retention = Retention(
            checked_seconds(retain_log[0], "retain_log"),
            checked_count(retain_log[1], "retain_log", 0),
            checked_count(reader_hold, "reader_hold", 0),
        )
        store = store_at(where, **store_options)
        runtime = Runtime(store, limits=limits or Limits(), auto_create=auto_create, retention=retention)
        return cls(runtime, confirm, restore)

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
        """Publish a message to a queue, which is made if need be."""
        runtime = self._runtime
        level = self._confirm if confirm is None else self._level(confirm)
        chosen = checked_body(body, self._limits)
        now = self._now_to_publish()
        if (
            headers is None
            and delay is None
            and ttl is None
            and key is None
            and group is None
            and dedup_id is None
            and notify == ()
        ):
            priority = checked_priority(priority)  # most messages have nothing else to say, and need not pay for asking
            attributes = None
        else:
            stages = checked_stages(notify)
            publication = Publication(priority, headers, delay, ttl, key, group, dedup_id, stages, label)
            attributes = publication.attributes(now, self._limits)
            priority = publication.priority
        where = self._queue_to_publish(queue, tags, now)
        first = None if attributes is None else where.seen(attributes, now)
        if first is None:
            sequence = self._engine.publish_on(where, chosen, now, self._me, priority, attributes)
        else:
            sequence = first
        if runtime.touch(len(chosen)) or level is not Level.READY:
            await runtime.confirm(level)
        return Receipt(0, sequence, first is not None)

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
        """Publish messages that differ in their bodies only; each is a message of its own, confirmed together.

        If the queue rejects what overflows and has no room for all of them, none is taken.
        """
        level = self._confirm if confirm is None else self._level(confirm)
        chosen = checked_bodies(bodies, self._limits)
        publication = Publication(priority, headers, delay, ttl, None, group)
        receipts: list[Receipt] = []
        now = self._now_to_publish()
        attributes = publication.attributes(now, self._limits)
        self._queue_to_publish(queue, tags, now).room.check_all(chosen, attributes)
        for body in chosen:
            now = self._now_to_publish()
            attributes = publication.attributes(now, self._limits)
            where = self._queue_to_publish(queue, tags, now)
            where.publishers.add(self._me.number)
            receipts.append(Receipt(0, where.publish(body, now, self._me.number, publication.priority, attributes)))
            if self._runtime.touch(len(body)):
                await self._runtime.confirm(Level.READY)
        await self._recorded(level)
        return receipts

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
        level = self._confirm if confirm is None else self._level(confirm)
        chosen = checked_body(body, self._limits)
        stages = checked_stages(notify)
        publication = Publication(priority, headers, delay, ttl, None, None, dedup_id, stages, label)
        now = self._now_to_publish()
        attributes = publication.attributes(now, self._limits)
        channels = self._engine.channels
        where = channels.topic_to_publish(checked_name(topic, "topic"), now)
        first = where.seen(attributes, now)
        if first is None:
            sequence = self._engine.publish_on(where, chosen, now, self._me, publication.priority, attributes)
        else:
            sequence = first
        if self._runtime.touch(len(chosen)) or level is not Level.READY:
            await self._runtime.confirm(level)
        return Receipt(0, sequence, first is not None)

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
        """Return a message to work on, or None if there is none within `wait` seconds.

        Without tags, from any queue of that name. It is leased for `work_timeout` seconds, else as its queue has it;
        `sync` says how far its assignment must be persisted before it is returned.
        """
        level = Level.READY if sync == "ready" else self._level(sync, "sync")
        if wait:
            wait = checked_seconds(wait, "wait")
        if tags is None and selector is None and match == "exact":
            queues = self._engine.channels.by_name.get(queue) if isinstance(queue, str) else None
            if queues is not None and len(queues) == 1 and not queues[0].exclusives:
                only = queues[0]
                timeout = only.settings.heartbeat_timeout if work_timeout is None else _lease(work_timeout)
                message = only.take(self._me, self._now(), timeout)
                if message is not None:
                    if self._runtime.touch() or level is not Level.READY:
                        await self._hand_over([message], level)
                    return message
                if not wait:
                    return None
        return await self._next(queue, tags, match, wait, _lease(work_timeout), selector, sync, settles=False)

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
        checked_count(most, "most", 1, self._limits.credit_max)
        level = self._level(sync, "sync")
        wait = checked_seconds(wait, "wait")
        selection = Selection.checked(queue, tags, match)
        consumer = Consumer(
            self._me, ignore, credit=most, timeout=_lease(work_timeout), takes_turns=selection.takes_turns
        )
        messages = self._engine.take_many(consumer, selection, self._now(), most)
        if not messages and wait:
            first = await self._next(queue, tags, match, wait, _lease(work_timeout), None, sync, settles=False)
            return [] if first is None else [first]
        if self._runtime.touch() or level is not Level.READY:
            await self._hand_over(messages, level)
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
        return await self._next(queue, tags, match, wait, OWN_LEASE, selector, "ready", settles=True)

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
        """Return messages as they come, `async for`; up to `credit` of them may be unsettled.

        From the queues of a name, now and to come, or from a topic or a pattern of topics. A `durable` subscriber of a
        topic is recognised by this name and gets what it missed; `from_seq` begins earlier than the end.
        """
        if (queue is None) == (topic is None):
            raise BadRequest("subscribe to a queue or to a topic, one of them", key="queue")
        if topic is not None and tags is not None:
            raise BadRequest("topics have no tags", key="tags")
        for key, value in (("durable", durable), ("from_seq", from_seq)):
            if queue is not None and value is not None:
                raise BadRequest(f"{key} goes with a topic", key=key)
        consumer = Consumer(
            self._me,
            ignore,
            credit=checked_count(credit, "credit", 1, self._limits.credit_max),
            timeout=_lease(work_timeout),
            exclusive=checked_flag(exclusive, "exclusive"),
            selector=self._selector(selector),
            level=self._level(sync, "sync"),
        )
        now = self._now()
        if queue is not None:
            selection = Selection.checked(queue, tags, match)
            consumer.takes_turns = selection.takes_turns
            self._engine.subscribe(consumer, selection)
        else:
            name = None if durable is None else checked_name(durable, "durable")
            first = None if from_seq is None else checked_count(from_seq, "from_seq", 0)
            self._engine.subscribe_topic(consumer, checked_name(topic, "topic"), now, name, first)
        self._runtime.touch()
        return Subscription(self._runtime, consumer)

    async def unsubscribe(self, topic: str, durable: str) -> None:
        """Remove a durable subscriber of a topic, or of a pattern, for good."""
        name, pattern = checked_name(durable, "durable"), checked_name(topic, "topic")
        self._engine.subscriptions.unsubscribe(name, pattern, self._now())
        await self._recorded(None)

    # Settling.

    async def complete(self, message: Message, *, confirm: Confirm | None = None) -> bool:
        """Settle a message with success; returns whether that was late, after its lease had run out."""
        level = self._confirm if confirm is None else self._level(confirm)
        late: bool = self._engine.given_out(message).cursor.finish(message, self._now())
        if self._runtime.touch() or level is not Level.READY:
            await self._runtime.confirm(level)
        return late

    async def complete_many(self, messages: Iterable[Message], *, confirm: Confirm | None = None) -> None:
        """Settle messages with success, all or none."""
        await self._settle_many(messages, Outcome.FINISH, "", confirm)

    async def fail(self, message: Message, *, reason: str = "", confirm: Confirm | None = None) -> None:
        """Count a failure: the message is retried, or dead-lettered after too many."""
        await self._settle(message, Outcome.FAIL, reason, confirm)

    async def release(self, message: Message, *, confirm: Confirm | None = None) -> None:
        """Let a message wait again without counting."""
        await self._settle(message, Outcome.RELEASE, "", confirm)

    async def reject(self, message: Message, *, reason: str = "rejected", confirm: Confirm | None = None) -> None:
        """Dead-letter a message at once."""
        await self._settle(message, Outcome.REJECT, reason, confirm)

    async def fail_many(self, messages: Iterable[Message], *, reason: str = "", confirm: Confirm | None = None) -> None:
        """Count a failure of each message, all or none."""
        await self._settle_many(messages, Outcome.FAIL, reason, confirm)

    async def release_many(self, messages: Iterable[Message], *, confirm: Confirm | None = None) -> None:
        """Let messages wait again without counting, all or none."""
        await self._settle_many(messages, Outcome.RELEASE, "", confirm)

    async def reject_many(
        self, messages: Iterable[Message], *, reason: str = "rejected", confirm: Confirm | None = None
    ) -> None:
        """Dead-letter messages at once, all or none."""
        await self._settle_many(messages, Outcome.REJECT, reason, confirm)

    async def keep_alive(self, message: Message | None = None) -> None:
        """Start the lease of a message anew, or of all that are held."""
        now = self._now()
        if message is None:
            self._engine.keep_alive_all(self._me, now)
        else:
            self._engine.given_out(message).cursor.keep_alive(message, now)

    def transaction(self) -> Transaction:
        """Return a transaction, to be used with `async with`: what is done in it happens at its end, all or nothing."""
        return Transaction(self._runtime, self._me, self._confirm)

    # Inside.

    def _queue_to_publish(self, queue: str, tags: Iterable[str], now: float) -> Queue:
        if tags == () and isinstance(queue, str):
            found = self._queues.get((queue, NO_TAGS))  # type: ignore[call-overload]  # a key is such a pair
            if found is not None:
                known: Queue = found
                return known
        return self._engine.channels.queue_to_publish(key_of(queue, tags), now)

    async def _settle(self, message: Message, outcome: Outcome, reason: str, confirm: object) -> None:
        level = self._confirm if confirm is None else self._level(confirm)
        now = self._now()
        settle(self._engine.given_out(message), outcome, checked_reason(reason, self._limits), now)
        await self._recorded(level)

    async def _settle_many(self, messages: Iterable[Message], outcome: Outcome, reason: str, confirm: object) -> None:
        level = self._confirm if confirm is None else self._level(confirm)
        text = checked_reason(reason, self._limits)
        if not isinstance(messages, Iterable):
            raise BadRequest(f"messages must be a list of messages, not {messages!r}", key="messages")
        operations: list[Publish | Settle] = [
            Settle(self._engine.given_out(message), outcome, text) for message in messages
        ]
        self._engine.transact(operations, self._me, self._now())
        await self._recorded(level)

    async def _next(
        self,
        queue: str,
        tags: Iterable[str] | None,
        match: str,
        wait: float,
        lease: float,
        selector: str | None,
        sync: Confirm,
        *,
        settles: bool,
    ) -> Message | None:
        """Return one message of those selected, now or within `wait` seconds."""
        selection = Selection.checked(queue, tags, match)
        seconds = checked_seconds(wait, "wait")
        consumer = Consumer(
            self._me,
            ignore,
            timeout=lease,
            settles=settles,
            once=True,
            takes_turns=selection.takes_turns,
            selector=self._selector(selector),
            level=self._level(sync, "sync"),
        )
        message = self._engine.take_now(consumer, selection, self._now())
        if message is None and seconds:
            return await wait_for_one(self._runtime, consumer.again(), selection, seconds)
        if self._runtime.touch() or consumer.level is not Level.READY:
            await self._hand_over([] if message is None else [message], consumer.level)
        return message

    async def _hand_over(self, messages: list[Message], level: Level) -> None:
        """Wait until assignments are persisted; whoever stops waiting for them does not have them."""
        try:
            await self._runtime.confirm(level)
        except asyncio.CancelledError:
            release(messages, self._runtime.now())
            self._runtime.touch()
            raise


def _lease(work_timeout: float | None) -> float:
    return OWN_LEASE if work_timeout is None else checked_timeout(work_timeout, "work_timeout")
