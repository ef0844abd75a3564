"""A transaction as a caller builds it: nothing happens until its end, then all of it or nothing."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from penstock.engine.clients import Client
from penstock.engine.transactions import Outcome, Publish, Settle
from penstock.model.errors import BadRequest
from penstock.model.message import Message
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.publication import PRIORITY_DEFAULT, Publication, checked_body, checked_reason
from penstock.model.stages import Level
from penstock.runtime.runtime import Runtime


class Transaction:
    """Collects publishes and settlements; `async with` does them at its end, unless an error leaves the block."""

    def __init__(self, runtime: Runtime, client: Client, level: Level) -> None:
        self._runtime = runtime
        self._client = client
        self._level = level
        self._operations: list[Publish | Settle] = []
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
        delay: float | None = None,
        ttl: float | None = None,
        key: str | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Publish to a queue at the end."""
        channel = QueueKey(checked_name(queue, "queue"), checked_tags(tags))
        self._publish(channel, body, Publication(priority, headers, delay, ttl, key, group, dedup_id))

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        priority: int = PRIORITY_DEFAULT,
        headers: Mapping[str, str] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Publish to a topic at the end."""
        publication = Publication(priority, headers, delay, ttl, dedup_id=dedup_id)
        self._publish(checked_name(topic, "topic"), body, publication)

    def complete(self, message: Message) -> None:
        """Settle a message with success at the end."""
        self._settle(message, Outcome.FINISH)

    def fail(self, message: Message, *, reason: str = "") -> None:
        """Count a failure of a message at the end."""
        self._settle(message, Outcome.FAIL, reason)

    def release(self, message: Message) -> None:
        """Let a message wait again at the end."""
        self._settle(message, Outcome.RELEASE)

    def reject(self, message: Message, *, reason: str = "rejected") -> None:
        """Dead-letter a message at the end."""
        self._settle(message, Outcome.REJECT, reason)

    async def commit(self) -> None:
        """Do all of it now, or raise and change nothing."""
        self._check_open()
        self._is_done = True
        self._runtime.check()
        if any(isinstance(operation, Publish) for operation in self._operations):
            self._runtime.check_room()
        self._runtime.check_running()
        done = self._runtime.engine.transact(self._operations, self._client, self._runtime.now())
        self.sequences = [sequence for sequence in done if sequence is not None]
        size = sum(len(operation.body) for operation in self._operations if isinstance(operation, Publish))
        if self._runtime.touch(size) or self._level is not Level.READY:
            await self._runtime.confirm(self._level)

    def _publish(self, channel: QueueKey | str, body: bytes, publication: Publication) -> None:
        limits = self._runtime.engine.limits
        chosen = checked_body(body, limits)
        attributes = publication.attributes(self._runtime.now(), limits)
        self._add(Publish(channel, chosen, publication.priority, attributes))

    def _settle(self, message: Message, outcome: Outcome, reason: str = "") -> None:
        engine = self._runtime.engine
        self._add(Settle(engine.given_out(message), outcome, checked_reason(reason, engine.limits)))

    def _add(self, operation: Publish | Settle) -> None:
        self._check_open()
        self._operations.append(operation)

    def _check_open(self) -> None:
        if self._is_done:
            raise BadRequest("this transaction is over; begin another", key="transaction")
