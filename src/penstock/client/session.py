"""A client's conversation with its broker, which outlasts its connections.

When a connection is lost another is opened, to the next address if there are several, and goes on as the same client:
what it holds stays its own. Requests without an answer are sent again, and subscriptions are made anew.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.client.address import Target
from penstock.client.approach import approach, attend, backoff
from penstock.client.errors import error_of, not_open
from penstock.client.keeper import Keeper
from penstock.client.link import Link
from penstock.model.errors import NoObject, NotAssigned, PenstockError, PermissionDenied, Unavailable
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import (
    Answer,
    Delivery,
    Hello,
    Keepalive,
    Login,
    NoticeOf,
    Refusal,
    Release,
    Request,
    Resume,
)

_KEEPALIVE = written(Keepalive())
#: What an error is about that is the broker's last word: somebody else goes on as this client, or it may not come in.
_LAST_KEYS = frozenset({"id", "login"})


class Subscriber(Protocol):
    """Who is sent messages without asking for each."""

    @property
    def request(self) -> Request:
        """What is sent to the broker over each connection."""

    def take(self, message: Delivery) -> None:
        """Take a message."""

    def fail(self, error: PenstockError) -> None:
        """Learn that no more will come."""


@dataclass(slots=True)
class Options:
    """How a client behaves; `penstock.connect` explains them."""

    connect_seconds: float = 10.0
    resume_seconds: float = 60.0
    keepalive_seconds: float = 15.0


@dataclass(slots=True)
class _Asked:
    """A request that waits for its answer."""

    data: bytes
    future: "Future[Answer]"
    #: The notice that is its answer; None for any other answer.
    stage: str | None = None
    #: Whether it belongs to one connection alone.
    is_passing: bool = False


@dataclass(slots=True)
class _State:
    """What is asked for, subscribed to, and held."""

    asked: dict[int, _Asked] = field(default_factory=dict)
    subscribers: dict[int, Subscriber] = field(default_factory=dict)
    held: dict[int, Delivery] = field(default_factory=dict)


class Session:
    """See the module."""

    def __init__(self, target: Target, options: Options, notice: Callable[[int, str], None]) -> None:
        self._target = target
        self._options = options
        #: Called with the label and stage of each notice that no request waits for.
        self._notice = notice
        self._state = _State()
        self._id: str | None = None
        self._link: Link | None = None
        #: The connection over which this client is still to be known.
        self._opening: Link | None = None
        #: Which host is tried first.
        self._first = 0
        self._is_lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._attendant: asyncio.Task[None] | None = None
        self._keeper: Keeper | None = None
        #: Whether messages may have been on their way when a connection was lost, so that the broker counts them as held.
        self._may_have_strays = False
        self._last_label = 0
        #: What hosts have said or done that do not serve.
        self._refused: Exception | None = None
        self._failure: PenstockError | None = None
        self.is_open = False

    # Opening and closing.

    async def start(self) -> None:
        """Connect, or raise why that cannot be."""
        try:
            async with asyncio.timeout(self._options.connect_seconds):
                await self._connect_at_last()
        except TimeoutError:
            reason = "has answered in time" if self._refused is None else f"answers: {self._refused}"
            raise Unavailable(f"no broker {reason}", key="url") from None
        self.is_open = True
        self._keeper = Keeper(self._keep, self._options.keepalive_seconds)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())
        if len(self._target.hosts) > 1:
            self._attendant = asyncio.get_running_loop().create_task(attend(lambda: self._link))

    async def close(self) -> None:
        """Give back what is held, and end the connection."""
        was_open, self.is_open = self.is_open, False
        for task in (self._supervisor, self._attendant):
            if task is not None:
                task.cancel()
        self._supervisor = self._attendant = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.stop)
        link, self._link = self._link, None
        if link is not None:
            if was_open:
                await self._say_goodbye(link)
            link.close()
        if was_open:
            self._give_up(not_open())

    async def _say_goodbye(self, link: Link) -> None:
        """Give back what is held, and ask to be kept no longer."""
        for message in self._state.held.values():
            link.send(written(Release(sequence=message.sequence, shard=message.shard)))
        try:
            async with asyncio.timeout(self._options.connect_seconds):
                await self._pass(link, Resume(resume_timeout=0.0, label=self.next_label()))
        except (TimeoutError, PenstockError):
            return  # the broker is not there to be told

    # Asking.

    def next_label(self) -> int:
        """Return a label that nothing else has."""
        self._last_label += 1
        return self._last_label

    def ask(self, label: int, data: bytes, stage: str | None = None) -> "Future[Answer]":
        """Send a request, now or when there is a connection; what is returned is done when it is answered."""
        if not self.is_open:
            raise self._failure or not_open()
        future: Future[Answer] = asyncio.get_running_loop().create_future()
        self._state.asked[label] = _Asked(data, future, stage)
        if self._link is not None:
            self._link.send(data)
        return future

    def expect(self, label: int) -> "Future[Answer]":
        """Return what is done when an answer with this label has come, to a part of a request that is sent by itself."""
        future: Future[Answer] = asyncio.get_running_loop().create_future()
        self._state.asked[label] = _Asked(b"", future)
        return future

    def give_up(self, label: int) -> None:
        """Wait for an answer no longer."""
        self._state.asked.pop(label, None)

    def tell(self, request: Request) -> None:
        """Send a request that wants no answer; without a connection it has no meaning."""
        if self._link is not None and self.is_open:
            self._link.send(written(request))

    def subscribe(self, label: int, subscriber: Subscriber) -> None:
        """Send messages to a subscriber, now and over later connections."""
        if not self.is_open:
            raise self._failure or not_open()
        self._state.subscribers[label] = subscriber
        if self._link is not None:
            self._link.send(written(subscriber.request))

    def unsubscribe(self, label: int) -> None:
        """Send nothing more to a subscriber."""
        self._state.subscribers.pop(label, None)

    @property
    def is_full(self) -> bool:
        """Whether callers should wait until the broker has read."""
        return self._link is not None and self._link.is_full

    async def drained(self) -> None:
        """Wait until the broker has read."""
        if self._link is not None:
            await self._link.drained()

    def forget(self, message: Delivery) -> None:
        """Take note that a message is no longer held."""
        self._state.held.pop(message.sequence, None)

    def hurry(self, lease_seconds: float | None) -> None:
        """Renew leases often enough for one of this length."""
        if lease_seconds is not None and self._keeper is not None:
            self._keeper.hurry(lease_seconds / 3)

    # Connections.

    async def _supervise(self) -> None:
        """Open another connection whenever one is lost."""
        while True:
            await self._is_lost.wait()
            try:
                await self._connect_at_last()
            except PenstockError as error:
                self._give_up(error)
                return

    async def _connect_at_last(self) -> None:
        """Open a connection, however often that has to be tried."""
        waits = backoff()
        while True:
            try:
                await self._connect()
            except (OSError, Unavailable) as error:
                self._note(error)
                await asyncio.sleep(next(waits))
            else:
                return

    def _note(self, error: Exception) -> None:
        self._refused = error

    async def _connect(self) -> None:
        """Open a connection, and go on over it."""
        hosts, seconds = self._target.hosts, self._options.connect_seconds
        order = (*hosts[self._first :], *hosts[: self._first])
        host, link = await approach(order, self._target.tls, self._note, seconds)
        async with asyncio.timeout(seconds):
            self._opening = link
            link.hand_over(self._take, self._lose)
            try:
                await self._introduce(link)
            except BaseException:
                self._opening = None
                link.close()
                raise
        self._link, self._opening, self._first = link, None, hosts.index(host)
        self._is_lost.clear()
        for asked in self._state.asked.values():
            if asked.data:
                link.send(asked.data)
        for subscriber in self._state.subscribers.values():
            link.send(written(subscriber.request))

    async def _introduce(self, link: Link) -> None:
        """Log in, and go on as who one was, or as somebody new."""
        seconds = self._options.resume_seconds
        if self._target.user is not None:
            login = Login(user=self._target.user, secret=self._target.secret, label=self.next_label())
            await self._pass(link, login)
        self._may_have_strays = self._id is not None
        try:
            resumed = await self._pass(link, Resume(id=self._id, resume_timeout=seconds, label=self.next_label()))
        except NoObject:
            self._may_have_strays = False
            self._state.held.clear()
            resumed = await self._pass(link, Resume(resume_timeout=seconds, label=self.next_label()))
        if isinstance(resumed, Hello):
            self._id = resumed.id

    async def _pass(self, link: Link, request: Login | Resume) -> Answer:
        """Ask something that belongs to this connection alone."""
        future: Future[Answer] = asyncio.get_running_loop().create_future()
        data = written(request)
        self._state.asked[request.label or 0] = _Asked(data, future, is_passing=True)
        link.send(data)
        return await future

    def _lose(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            self._first = (self._first + 1) % len(self._target.hosts)
            self._is_lost.set()
        if link is self._opening or not self.is_open:
            self._fail_passing(Unavailable("the connection was lost", key="connection"))

    def _fail_passing(self, error: PenstockError) -> None:
        """End what waits for answers of a connection that is gone."""
        for label, asked in list(self._state.asked.items()):
            if asked.is_passing:
                del self._state.asked[label]
                if not asked.future.done():
                    asked.future.set_exception(error)

    def _keep(self) -> None:
        link, held = self._link, list(self._state.held.values())
        if link is None or not held:
            return
        if not self._may_have_strays:
            link.send_from_thread(_KEEPALIVE)
            return
        for message in held:  # and nothing else: a lease that nobody works under has to run out
            link.send_from_thread(written(Keepalive(sequence=message.sequence, shard=message.shard)))

    def _give_up(self, error: PenstockError) -> None:
        """End all that waits; there will be no other connection."""
        self.is_open, self._failure = False, error
        state, self._state = self._state, _State()
        for asked in state.asked.values():
            if not asked.future.done():
                asked.future.set_exception(error)
        for subscriber in state.subscribers.values():
            subscriber.fail(error)

    # Answers.

    def _take(self, answer: Answer) -> None:
        label: int | None = answer.label  # type: ignore[attr-defined]  # all of them have one
        if label is None:
            self._take_unasked(answer)
            return
        if type(answer) is Delivery:
            self._take_message(label, answer)
            return
        asked = self._state.asked.get(label)
        if type(answer) is NoticeOf and (asked is None or asked.stage != answer.notice):
            self._take_notice(label, answer, asked)
            return
        if asked is None:
            if isinstance(answer, Refusal) and label in self._state.subscribers:
                self._state.subscribers.pop(label).fail(error_of(answer))
            return
        del self._state.asked[label]
        if asked.future.done():
            return  # nobody waits for it any more
        if isinstance(answer, Refusal):
            asked.future.set_exception(error_of(answer))
        else:
            asked.future.set_result(answer)
            if type(answer) is NoticeOf:
                self._notice(label, answer.notice)

    def _take_message(self, label: int, message: Delivery) -> None:
        if not message.finished:
            self._state.held[message.sequence] = message
        subscriber = self._state.subscribers.get(label)
        if subscriber is not None:
            subscriber.take(message)
            return
        asked = self._state.asked.pop(label, None)
        if asked is not None and not asked.future.done():
            asked.future.set_result(message)
        elif not message.finished:  # who asked for it has gone
            self.forget(message)
            self.tell(Release(sequence=message.sequence, shard=message.shard))

    def _take_notice(self, label: int, notice: NoticeOf, asked: _Asked | None) -> None:
        """Take a notice that is no answer; `finish` may stand for the `ready` that somebody waits for."""
        if asked is not None and notice.notice == "finish" and asked.stage == "ready":
            del self._state.asked[label]
            if not asked.future.done():
                asked.future.set_result(notice)
        self._notice(label, notice.notice)

    def _take_unasked(self, answer: Answer) -> None:
        if isinstance(answer, Refusal):
            error = error_of(answer)
            is_last = error.key in _LAST_KEYS and isinstance(error, NotAssigned | PermissionDenied)
            if is_last and self.is_open:
                self._give_up(error)
