"""A transaction of a client: nothing happens until its end, then all of it or nothing."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from penstock.client.requests import post_of
from penstock.client.session import Session
from penstock.model.errors import BadRequest
from penstock.model.publication import PRIORITY_DEFAULT
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import Batch, Delivery, Fail, Finish, Ok, Operation, Post, Reject, Release


class Transaction:
    """Collects publishes and settlements; `async with` does them at its end, unless an error leaves the block."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._requests: list[Operation] = []
        self._settled: list[Delivery] = []
        self._is_done = False
        #: The sequence of each message that was published, in the order of the calls, once it is done.
        self.sequences: list[int] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._is_done:
            await self.commit()
        self._is_done = True

    def enqueue(
        self,
        queue: str,
        body: bytes,
        *,
        tags: Iterable[str] = (),
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Publish to a queue at the end; `more` is what else a post may say."""
        self._add(post_of(queue=queue, body=body, tags=tags, priority=priority, headers=headers, **more))

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Publish to a topic at the end; `more` is what else a post may say."""
        self._add(post_of(topic=topic, body=body, priority=priority, headers=headers, **more))

    def complete(self, message: Delivery) -> None:
        """Settle a message with success at the end."""
        self._settle(message, Finish(queue=message.queue, sequence=message.sequence, shard=message.shard))

    def fail(self, message: Delivery, *, reason: str = "") -> None:
        """Count a failure of a message at the end."""
        self._settle(message, Fail(queue=message.queue, sequence=message.sequence, shard=message.shard, reason=reason))

    def release(self, message: Delivery) -> None:
        """Let a message wait again at the end."""
        self._settle(message, Release(queue=message.queue, sequence=message.sequence, shard=message.shard))

    def reject(self, message: Delivery, *, reason: str = "rejected") -> None:
        """Dead-letter a message at the end."""
        self._settle(
            message, Reject(queue=message.queue, sequence=message.sequence, shard=message.shard, reason=reason)
        )

    async def commit(self) -> None:
        """Do all of it now, or raise and change nothing."""
        self._check_open()
        self._is_done = True
        session = self._session
        batch = Batch(requests=self._requests, label=session.next_label())
        labels = [request.label or 0 for request in self._requests if isinstance(request, Post)]
        posted = [session.expect(label) for label in labels]
        try:
            await session.ask(batch.label or 0, written(batch))
        finally:
            for label in labels:
                session.give_up(label)
        answers = [future.result() for future in posted if future.done()]  # they come before that of the batch
        self.sequences = [answer.sequence or 0 for answer in answers if isinstance(answer, Ok)]
        for message in self._settled:
            session.forget(message)

    def _settle(self, message: Delivery, request: Operation) -> None:
        self._add(request)
        self._settled.append(message)

    def _add(self, request: Operation) -> None:
        self._check_open()
        if isinstance(request, Post):
            request.label = self._session.next_label()
        self._requests.append(request)

    def _check_open(self) -> None:
        if self._is_done:
            raise BadRequest("this transaction is over; begin another", key="transaction")
