"""Workers: handlers of messages, so many at a time, that end in good order when the program is told to stop.

    workers = Workers(broker)

    @workers.on("orders", concurrency=8)
    async def handle(message): ...

    await workers.run()      # until SIGTERM or Ctrl-C

A handler that returns has finished its message; one that raises has failed it. One that is no coroutine function runs in a
thread.
"""

import asyncio
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.client.client import Client, Message
from penstock.client.subscription import Subscription
from penstock.model.errors import NoObject, NotAssigned, PenstockError

LOG = logging.getLogger("penstock.worker")
Handler = TypeVar("Handler", bound=Callable[[Message], Any])
#: Seconds that running handlers have when the program is told to stop.
GRACE_SECONDS = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_REASON_CHARACTERS = 1000


class _Work(NamedTuple):
    """A handler, and what it is to be given."""

    handler: Callable[[Message], Any]
    concurrency: int
    queue: str | None
    options: dict[str, Any]


class Workers:
    """See the module."""

    def __init__(self, broker: Client) -> None:
        self._broker = broker
        self._works: list[_Work] = []
        self._subscriptions: list[Subscription] = []
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopped = asyncio.Event()

    def on(self, queue: str | None = None, *, concurrency: int = 1, **options: Any) -> Callable[[Handler], Handler]:
        """Decorate a handler of the messages of a queue, or of a `topic`; `options` are those of `subscribe`."""

        def decorated(handler: Handler) -> Handler:
            self._works.append(_Work(handler, concurrency, queue, options))
            return handler

        return decorated

    async def run(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Work until SIGTERM, Ctrl-C or `stop`; then let handlers end, and give back what they do not end in time."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            await self._work()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            for subscription in self._subscriptions:
                subscription.close()
            await self._end(grace_seconds)

    def stop(self) -> None:
        """Take no more messages, and end `run` when those in work are done."""
        self._is_stopped.set()

    async def _work(self) -> None:
        """Take messages until told to stop, or until that fails."""
        taking = [asyncio.ensure_future(self._take(work)) for work in self._works]
        stopped = asyncio.ensure_future(self._is_stopped.wait())
        done, waiting = await asyncio.wait([stopped, *taking], return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for task in done:
            task.result()

    async def _take(self, work: _Work) -> None:
        """Give messages to a handler as they come."""
        subscription = self._broker.subscribe(work.queue, credit=work.concurrency, **work.options)
        self._subscriptions.append(subscription)
        async for message in subscription:
            task = asyncio.ensure_future(self._handle(work, message))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _handle(self, work: _Work, message: Message) -> None:
        """Have a message handled, and settle it."""
        settle: Callable[[], Awaitable[object]]
        try:
            if inspect.iscoroutinefunction(work.handler):
                await work.handler(message)
            else:
                await asyncio.to_thread(work.handler, message)
            settle = partial(self._broker.complete, message)
        except asyncio.CancelledError:
            settle = partial(self._broker.release, message)
        except Exception as error:
            LOG.exception("message %d failed", message.sequence)
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            settle = partial(self._broker.fail, message, reason=reason)
        try:
            await settle()
        except (NoObject, NotAssigned):
            LOG.warning("message %d was lost to another while it was in work", message.sequence)
        except PenstockError:
            LOG.exception("message %d could not be settled", message.sequence)

    async def _end(self, grace_seconds: float) -> None:
        """Let handlers end in time, and cancel the others."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
