"""A subscription of a client: messages as they come, whatever connections come and go."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from penstock.client.session import Session
from penstock.model.errors import PenstockError
from penstock.protocols.native.messages import Delivery, Release, Subscribe, Unsubscribe


class Subscription:
    """Messages as they come; `async for message in subscription`. Each is to be settled.

    It ends when it is closed, by `async with` or `close()`: what was not taken from it waits again.
    """

    def __init__(self, session: Session, request: Subscribe) -> None:
        self.request = request
        self._session = session
        self._messages: deque[Delivery] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._failure: PenstockError | None = None
        self._is_closed = False
        session.subscribe(request.label or 0, self)

    def take(self, message: Delivery) -> None:
        """Take a message."""
        self._messages.append(message)
        self._wake()

    def fail(self, error: PenstockError) -> None:
        """Learn that no more will come."""
        self._failure = error
        while self._waiting:
            self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise StopAsyncIteration
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        return self._messages.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more; what was not taken out yet waits again, and does not count as failed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._session.unsubscribe(self.request.label or 0)
        self._session.tell(Unsubscribe(subscription=self.request.label))
        for message in self._messages:
            self._session.forget(message)
            self._session.tell(Release(sequence=message.sequence, shard=message.shard))
        self._messages.clear()
        while self._waiting:
            self._wake()

    def _wake(self) -> None:
        """Let the first who waits look again."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
