"""The embedded broker without async: the same calls, each returning when it is done.

    from penstock.sync import Broker

    with Broker.open("data") as broker:
        broker.enqueue("orders", b"...")

An event loop in a thread of its own does the work, so calls may come from any thread.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from penstock.broker import CREDIT_DEFAULT, Where
from penstock.broker import Broker as AsyncBroker
from penstock.client import client
from penstock.client.client import Client
from penstock.model.errors import Unavailable
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.runtime.administration import Confirm
from penstock.runtime.subscription import Subscription as AsyncSubscription
from penstock.runtime.transaction import Transaction as AsyncTransaction

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncBroker, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Broker", P], R]:
    """Return the method as one that waits for its result."""

    def call(self: "Broker", /, *args: P.args, **kwargs: P.kwargs) -> R:
        same: Callable[P, Coroutine[Any, Any, R]] = getattr(
            self.broker, method.__name__
        )  # over the network it is another
        return self.run(same(*args, **kwargs))

    return update_wrapper(call, method)


def connect(url: str, **options: Any) -> "Broker":
    """Return a broker somewhere else, to be used with `with`; see `penstock.connect`."""
    return Broker(client.connect(url, **options))


class Broker:
    """See the module, and `penstock.Broker` for what the methods do."""

    def __init__(self, broker: AsyncBroker | Client) -> None:
        self.broker = cast("AsyncBroker", broker)  # both have the same methods
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-loop", daemon=True)
        #: Held while a call is handed to the loop, so that none is handed to one that is stopping.
        self._gate = threading.Lock()
        self._is_open = False
        self._was_started = False

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
        """Return a broker, to be used with `with`; see `penstock.Broker.open`."""
        broker = AsyncBroker.open(
            where,
            confirm=confirm,
            auto_create=auto_create,
            retain_log=retain_log,
            reader_hold=reader_hold,
            limits=limits,
            restore=restore,
            **store_options,
        )
        return cls(broker)

    def start(self) -> Self:
        """Recover what the store holds, and begin."""
        with self._gate:
            if self._was_started:
                raise Unavailable("this broker was started already; open another", key="broker")
            self._was_started = self._is_open = True
            self._thread.start()
        try:
            self.run(self.broker.start())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def close(self) -> None:
        """Release what is held, make everything durable, and let go of the store."""
        if self._is_open:
            try:
                self.run(self.broker.close())
            finally:
                self._stop_loop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Wait for a call of the asynchronous broker; an interrupt cancels it."""
        if threading.current_thread() is self._thread:
            call.close()
            raise Unavailable("this is the broker's own thread, which cannot wait for itself", key="broker")
        with self._gate:
            if not self._is_open:
                call.close()
                raise Unavailable("this broker is not open; use it inside `with Broker.open(...)`", key="broker")
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("the broker was closed meanwhile", key="broker") from None
        except BaseException:
            future.cancel()
            raise

    @property
    def is_healthy(self) -> bool:
        """Whether the broker can still promise anything."""
        return self.broker.is_healthy

    @property
    def notes(self) -> list[str]:
        """Sentences about what recovery had to do."""
        return self.broker.notes

    # These take any setting by name, `self` included, which `_blocking` cannot express.

    def create_queue(self, queue: str, *, tags: Iterable[str] = (), exclusive: bool = False, **settings: Any) -> None:
        """Make a queue; one that exists is left as it is, unless it is to be made exclusively."""
        self.run(self.broker.create_queue(queue, tags=tags, exclusive=exclusive, **settings))

    def alter_queue(self, queue: str, *, tags: Iterable[str] = (), **settings: Any) -> None:
        """Change settings of a queue."""
        self.run(self.broker.alter_queue(queue, tags=tags, **settings))

    def create_topic(self, topic: str, *, exclusive: bool = False, **settings: Any) -> None:
        """Make a topic; one that exists is left as it is, unless it is to be made exclusively."""
        self.run(self.broker.create_topic(topic, exclusive=exclusive, **settings))

    def alter_topic(self, topic: str, **settings: Any) -> None:
        """Change settings of a topic."""
        self.run(self.broker.alter_topic(topic, **settings))

    pause_queue = _blocking(AsyncBroker.pause_queue)
    resume_queue = _blocking(AsyncBroker.resume_queue)
    delete_queue = _blocking(AsyncBroker.delete_queue)
    purge_queue = _blocking(AsyncBroker.purge_queue)
    delete_topic = _blocking(AsyncBroker.delete_topic)
    enqueue = _blocking(AsyncBroker.enqueue)
    enqueue_many = _blocking(AsyncBroker.enqueue_many)
    publish = _blocking(AsyncBroker.publish)
    poll = _blocking(AsyncBroker.poll)
    poll_many = _blocking(AsyncBroker.poll_many)
    pop = _blocking(AsyncBroker.pop)
    unsubscribe = _blocking(AsyncBroker.unsubscribe)
    complete = _blocking(AsyncBroker.complete)
    complete_many = _blocking(AsyncBroker.complete_many)
    fail = _blocking(AsyncBroker.fail)
    fail_many = _blocking(AsyncBroker.fail_many)
    release = _blocking(AsyncBroker.release)
    release_many = _blocking(AsyncBroker.release_many)
    reject = _blocking(AsyncBroker.reject)
    reject_many = _blocking(AsyncBroker.reject_many)
    keep_alive = _blocking(AsyncBroker.keep_alive)
    status = _blocking(AsyncBroker.status)
    topic_status = _blocking(AsyncBroker.topic_status)
    queues = _blocking(AsyncBroker.queues)
    topics = _blocking(AsyncBroker.topics)
    peek = _blocking(AsyncBroker.peek)
    redrive = _blocking(AsyncBroker.redrive)
    backup = _blocking(AsyncBroker.backup)
    collect = _blocking(AsyncBroker.collect)

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
    ) -> "Subscription":
        """Return messages as they come, to be iterated over; see `penstock.Broker.subscribe`."""

        async def subscribed() -> AsyncSubscription:
            return self.broker.subscribe(
                queue,
                topic=topic,
                tags=tags,
                match=match,
                credit=credit,
                durable=durable,
                from_seq=from_seq,
                work_timeout=work_timeout,
                selector=selector,
                exclusive=exclusive,
                sync=sync,
            )

        return Subscription(self, self.run(subscribed()))

    def notices(self) -> Iterator[tuple[int, str]]:
        """Yield label and stage of each notice; see `penstock.Broker.notices`."""
        notices = self.broker.notices()
        while True:
            try:
                notice = self.run(_next_of(notices))
            except StopAsyncIteration:
                return
            yield notice

    def transaction(self) -> "Transaction":
        """Return a transaction, to be used with `with`: what is done in it happens at its end, all or nothing."""
        return Transaction(self, self.broker.transaction())

    def _stop_loop(self) -> None:
        with self._gate:
            if not self._is_open:
                return
            self._is_open = False
            ended = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next_of(notices: AsyncIterator[tuple[int, str]]) -> tuple[int, str]:
    return await anext(notices)


async def _cancel_others() -> None:
    """Cancel calls of other threads that are still waiting, and let them end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Subscription:
    """Messages as they come; each is to be settled. Close it, or use it with `with`."""

    def __init__(self, owner: Broker, subscription: AsyncSubscription) -> None:
        self._owner = owner
        self._subscription = subscription

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return self._owner.run(self._subscription.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more; what was not taken out yet waits again, and does not count as failed."""

        async def closed() -> None:
            self._subscription.close()

        with suppress(Unavailable):  # a broker that is closed has closed its subscriptions
            self._owner.run(closed())


class Transaction:
    """Collects publishes and settlements, and does them at the end of its `with`, all or nothing."""

    def __init__(self, owner: Broker, transaction: AsyncTransaction) -> None:
        self._owner = owner
        self._transaction = transaction
        self.enqueue = transaction.enqueue
        self.publish = transaction.publish
        self.complete = transaction.complete
        self.fail = transaction.fail
        self.release = transaction.release
        self.reject = transaction.reject

    @property
    def sequences(self) -> list[int]:
        """The sequence of each message that was published, once it is done."""
        return self._transaction.sequences

    def commit(self) -> None:
        """Do all of it now, or raise and change nothing."""
        self._owner.run(self._transaction.commit())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.run(self._transaction.__aexit__(kind, error, trace))
