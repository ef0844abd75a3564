"""Waiting for messages: subscriptions that are iterated over, and waiting for just one."""

import asyncio
from collections import deque
from functools import partial
from types import TracebackType
from typing import Self

from penstock.engine.consumers import Consumer
from penstock.engine.selection import Selection
from penstock.model.message import Message, State
from penstock.runtime.runtime import Runtime


class Subscription:
    """Messages as they come; `async for message in subscription`. Each is to be settled.

    It ends when it is closed, by `async with`, `close()` or by being dropped: what was not taken from it waits again.
    """

    def __init__(self, runtime: Runtime, consumer: Consumer) -> None:
        self._runtime = runtime
        self._consumer = consumer
        self._messages: deque[Message] = deque()
        # The consumer knows the mailbox only, so that a subscription which nobody has any more is noticed and closed.
        self._mailbox = _Mailbox(self._messages)
        consumer.on_ready = self._mailbox.receive
        runtime.watch(self._mailbox.wake)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        messages = self._messages
        while True:
            while messages:
                message = messages.popleft()
                if message.state is State.ASSIGNED:  # else it lapsed, or went with its queue, before anybody saw it
                    message.cursor.keep_alive(message, self._runtime.now())
                    return message
            consumer = self._consumer
            if consumer.failure is not None:
                raise consumer.failure
            if not consumer.is_open:
                raise StopAsyncIteration
            self._runtime.check()
            self._runtime.check_running()
            await self._mailbox.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more; what was not taken out yet waits again, and does not count as failed."""
        if self._runtime.is_here():
            _close(self._runtime, self._consumer, self._mailbox)
        else:
            self.__del__()

    def __del__(self) -> None:
        if self._consumer.is_open:
            self._runtime.call_soon(partial(_close, self._runtime, self._consumer, self._mailbox))


class _Mailbox:
    """Where a consumer's messages are put until they are asked for."""

    __slots__ = ("messages", "waiting")

    def __init__(self, messages: deque[Message]) -> None:
        self.messages = messages
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until there may be something; several tasks may."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        await future

    def receive(self, consumer: Consumer) -> None:
        """Take over what may be taken out of the consumer's inbox."""
        self.messages.extend(consumer.take_out())
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _close(runtime: Runtime, consumer: Consumer, mailbox: _Mailbox) -> None:
    """Close a consumer, and let wait again what it was given but nobody took."""
    if consumer.is_open and runtime.failure is None:
        now = runtime.now()
        release(mailbox.messages, now)
        release(consumer.inbox, now)
        consumer.close(now)
        runtime.unwatch(mailbox.wake)
        mailbox.wake()
        runtime.touch()


def release(messages: "list[Message] | deque[Message]", now: float) -> None:
    """Let messages wait again that were assigned but not taken."""
    for message in messages:
        if message.state is State.ASSIGNED:
            message.cursor.release(message, now)
    messages.clear()


async def wait_for_one(runtime: Runtime, consumer: Consumer, selection: Selection, seconds: float) -> Message | None:
    """Return the next message for a consumer that wants one, or None if none comes in time."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def tell(_: Consumer | None = None) -> None:
        if not arrived.done():
            arrived.set_result(None)

    def give_up() -> None:
        if not consumer.inbox:  # else it is assigned already, and only waits for that to be persisted
            tell()

    consumer.on_ready = tell
    runtime.engine.subscribe(consumer, selection)
    runtime.watch(tell)
    runtime.touch()
    timer = loop.call_later(seconds, give_up)
    try:
        await arrived
    except asyncio.CancelledError:
        release(consumer.inbox, runtime.now())
        raise
    finally:
        timer.cancel()
        runtime.unwatch(tell)
        consumer.close(runtime.now())
        runtime.touch()
    if consumer.inbox and consumer.settles:
        return consumer.inbox.pop()  # whatever has come meanwhile: it is settled, and nobody else will ever have it
    runtime.check()
    runtime.check_running()
    return consumer.inbox.pop() if consumer.inbox else None
