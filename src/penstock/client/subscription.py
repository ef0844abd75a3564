"""A subscription of a client: messages as they come, whatever connections come and go."""

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.client.session import Session
from penstock.model.errors import PenstockError
from penstock.protocols.native.messages import Delivery, Release, Subscribe, Unsubscribe


class Subscription:
    """Messages as they come; `async for message in subscription`. Each is to be settled.

    It ends when it is closed, by `async with`, `close()` or by being dropped: what was not taken from it waits again.
    """

    def __init__(self, session: Session, request: Subscribe) -> None:
        self._loop = asyncio.get_running_loop()
        # The session knows the mailbox only, so that a subscription which nobody has any more is noticed and closed.
        self._mailbox = _Mailbox(session, request)
        self._mailbox.open()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        mailbox = self._mailbox
        while not mailbox.messages:
            if mailbox.failure is not None:
                raise mailbox.failure
            if not mailbox.is_open:
                raise StopAsyncIteration
            await mailbox.wait()
        return mailbox.messages.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more; what was not taken out yet waits again, and does not count as failed."""
        self._mailbox.close()

    def __del__(self) -> None:
        if self._mailbox.is_open:
            with suppress(RuntimeError):  # the loop is closed, and all of the client with it
                self._loop.call_soon_threadsafe(self._mailbox.close)


class _Mailbox:
    """Where messages are put until they are asked for."""

    __slots__ = ("_session", "_waiting", "failure", "is_open", "messages", "request")

    def __init__(self, session: Session, request: Subscribe) -> None:
        self.request = request
        self.messages: deque[Delivery] = deque()
        #: Why no more will come.
        self.failure: PenstockError | None = None
        self.is_open = False
        self._session = session
        self._waiting: deque[asyncio.Future[None]] = deque()

    def open(self) -> None:
        """Begin to be sent messages."""
        self._session.subscribe(self.request.label or 0, self)
        self.is_open = True

    def take(self, message: Delivery) -> None:
        """Take a message."""
        self.messages.append(message)
        self._wake()

    def fail(self, error: PenstockError) -> None:
        """Learn that no more will come."""
        self.failure = error
        self._wake_all()

    async def wait(self) -> None:
        """Wait until there may be something; several tasks may."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def close(self) -> None:
        """Be sent no more, and let wait again what was not taken out."""
        if not self.is_open:
            return
        self.is_open = False
        self._session.unsubscribe(self.request.label or 0)
        self._session.tell(Unsubscribe(subscription=self.request.label))
        for message in self.messages:
            self._session.forget(message)
            self._session.tell(Release(sequence=message.sequence, shard=message.shard))
        self.messages.clear()
        self._wake_all()

    def _wake(self) -> None:
        """Let the first who waits look again."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiting:
            self._wake()
