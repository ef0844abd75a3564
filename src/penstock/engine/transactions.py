"""Transactions: publishes and settlements that happen together or not at all.

Everything that could refuse is asked before anything is changed; what follows cannot fail. The records of one call
of the engine are always written as one batch, and so a transaction is one record of the log.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.engine.channels import Channels
from penstock.engine.queue import Queue
from penstock.engine.topic import Topic
from penstock.model.errors import NoObject, NotAssigned, QueueFull, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import Message, State
from penstock.model.names import QueueKey
from penstock.model.publication import size_of


class Outcome(StrEnum):
    """How a message is settled."""

    FINISH = "finish"
    FAIL = "fail"
    RELEASE = "release"
    REJECT = "reject"


@dataclass(slots=True)
class Publish:
    """A message to be published to a queue, or to a topic named by a text."""

    channel: QueueKey | str
    body: bytes
    priority: int
    attributes: dict[int, Any] | None


@dataclass(slots=True)
class Settle:
    """A message to be settled."""

    message: Message
    outcome: Outcome = Outcome.FINISH
    reason: str = ""


@dataclass(slots=True)
class _Load:
    """What a transaction adds to one queue and takes from it."""

    messages: int = 0
    bytes: int = 0
    freed: int = 0
    freed_bytes: int = 0
    sizes: list[int] = field(default_factory=list)


def transact(
    channels: Channels, limits: Limits, operations: list[Publish | Settle], client: int, now: float
) -> list[int | None]:
    """Apply all operations in their order, or raise and change nothing; returns the sequence of each publish."""
    _check_size(limits, operations)
    loads: dict[QueueKey, _Load] = {}
    settled: set[Message] = set()
    for operation in operations:
        if isinstance(operation, Settle):
            _check_settle(operation, settled, loads)
        else:
            _check_publish(channels, operation, loads)
    for key, load in loads.items():
        queue = channels.queues.get(key)
        if queue is not None:
            _check_room(queue, load)
    return [_apply(channels, operation, client, now) for operation in operations]


def _check_size(limits: Limits, operations: list[Publish | Settle]) -> None:
    if len(operations) > limits.transaction_operations_max:
        raise TooLarge(
            f"a transaction of {len(operations)} operations is too large; at most "
            f"{limits.transaction_operations_max} are allowed (transaction_operations_max)",
            key="transaction",
            size=len(operations),
            limit=limits.transaction_operations_max,
        )
    size = sum(len(operation.body) for operation in operations if isinstance(operation, Publish))
    if size > limits.transaction_bytes_max:
        raise TooLarge(
            f"a transaction with bodies of {size} bytes is too large; at most {limits.transaction_bytes_max} are "
            "allowed (transaction_bytes_max)",
            key="transaction",
            size=size,
            limit=limits.transaction_bytes_max,
        )


def _check_settle(operation: Settle, settled: set[Message], loads: dict[QueueKey, _Load]) -> None:
    message = operation.message
    if message.state is not State.ASSIGNED or message in settled:
        text = f"the message {message.sequence} is not assigned to you any more; the transaction changed nothing"
        if message.cursor.holds(message.sequence):
            raise NotAssigned(text, key="sequence", sequence=message.sequence)
        raise NoObject(text, key="sequence", sequence=message.sequence)
    settled.add(message)
    if operation.outcome is Outcome.FINISH and message.cursor.is_queue:
        load = loads.setdefault(message.cursor.key, _Load())
        load.freed += 1
        load.freed_bytes += size_of(message.record)


def _check_publish(channels: Channels, operation: Publish, loads: dict[QueueKey, _Load]) -> None:
    channel = operation.channel
    if isinstance(channel, str):
        if not channels.auto_create:
            channels.topic(channel)
        return
    if not channels.auto_create:
        channels.queue(channel)
    size = size_of((0, 0, 0.0, 0, 0, 0, operation.attributes, operation.body))
    load = loads.setdefault(channel, _Load())
    load.messages += 1
    load.bytes += size
    load.sizes.append(size)


def _check_room(queue: Queue, load: _Load) -> None:
    """Raise if the queue cannot take all of it: rejecting what overflows, or full of what is assigned."""
    if not load.messages:
        return
    queue.check_room(load.bytes, messages=load.messages, freed=load.freed, freed_bytes=load.freed_bytes)
    settings = queue.settings
    assigned_bytes = sum(size_of(message.record) for message in queue.assigned.values())
    too_many = (
        settings.max_length is not None and len(queue.assigned) - load.freed + load.messages > settings.max_length
    )
    too_large = settings.max_bytes is not None and assigned_bytes - load.freed_bytes + load.bytes > settings.max_bytes
    if too_many or too_large:
        raise QueueFull(
            f"{queue} cannot take {load.messages} messages of {load.bytes} bytes in one transaction",
            key="queue",
            length=queue.length,
            bytes=queue.bytes,
        )


def _apply(channels: Channels, operation: Publish | Settle, client: int, now: float) -> int | None:
    if isinstance(operation, Publish):
        channel: Queue | Topic
        if isinstance(operation.channel, str):
            channel = channels.topic_to_publish(operation.channel, now)
        else:
            channel = channels.queue_to_publish(operation.channel, now)
        return channel.publish(operation.body, now, client, operation.priority, operation.attributes)
    settle(operation.message, operation.outcome, operation.reason, now)
    return None


def settle(message: Message, outcome: Outcome, reason: str, now: float) -> bool:
    """Settle one message; returns whether that was late."""
    cursor = message.cursor
    if outcome is Outcome.FINISH:
        late: bool = cursor.finish(message, now)
        return late
    if outcome is Outcome.FAIL:
        cursor.fail(message, now, reason)
    elif outcome is Outcome.RELEASE:
        cursor.release(message, now)
    else:
        cursor.reject(message, now, reason)
    return False
