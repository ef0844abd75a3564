"""Transactions: publishes and settlements that happen together or not at all.

Everything that could refuse is asked before anything is changed; what follows cannot fail. The records of one call
of the engine are always written as one batch, and so a transaction is one record of the log.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.engine.channels import Channels
from penstock.engine.queue import Queue
from penstock.engine.topic import Topic
from penstock.model.errors import NoObject, NotAssigned, TooLarge
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


def transact(
    channels: Channels, limits: Limits, operations: list[Publish | Settle], client: int, now: float
) -> list[int | None]:
    """Apply all operations in their order, or raise and change nothing; returns the sequence of each publish."""
    _check_size(limits, operations)
    loads: dict[QueueKey, _Load] = {}
    settled: set[Message] = set()
    missing: dict[QueueKey | str, None] = {}
    for operation in operations:
        if isinstance(operation, Settle):
            _check_settle(operation, settled, loads)
        else:
            _check_publish(channels, operation, loads, missing)
    if missing:
        channels.check_count(len(missing))
    for key, load in loads.items():
        queue = channels.queues.get(key)
        if queue is not None and load.messages:
            queue.room.check_load(load.bytes, load.messages, load.freed, load.freed_bytes)
    for channel in missing:
        _find(channels, channel, now)
    # What is finished makes room for what is published; what comes back or dies may take more than there is.
    sequences: list[int | None] = [None] * len(operations)
    for operation in operations:
        if isinstance(operation, Settle) and operation.outcome is Outcome.FINISH:
            settle(operation.message, operation.outcome, operation.reason, now)
    for index, operation in enumerate(operations):
        if isinstance(operation, Publish):
            sequences[index] = _publish(channels, operation, client, now)
    for operation in operations:
        if isinstance(operation, Settle) and operation.outcome is not Outcome.FINISH:
            settle(operation.message, operation.outcome, operation.reason, now)
    return sequences


def check_operations(limits: Limits, count: int) -> None:
    """Raise if a transaction may not have so many operations."""
    if count > limits.transaction_operations_max:
        raise TooLarge(
            f"a transaction of {count} operations is too large; at most {limits.transaction_operations_max} are allowed "
            "(transaction_operations_max)",
            key="transaction",
            size=count,
            limit=limits.transaction_operations_max,
        )


def _check_size(limits: Limits, operations: list[Publish | Settle]) -> None:
    check_operations(limits, len(operations))
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


def _check_publish(
    channels: Channels, operation: Publish, loads: dict[QueueKey, _Load], missing: dict[QueueKey | str, None]
) -> None:
    channel = operation.channel
    if isinstance(channel, str):
        if channel not in channels.topics:
            missing[channel] = None
            channels.check_to_make(channel)
        return
    if channel not in channels.queues:
        missing[channel] = None
        channels.check_to_make(channel)
    size = size_of((0, 0, 0.0, 0, 0, 0, operation.attributes, operation.body))
    load = loads.setdefault(channel, _Load())
    load.messages += 1
    load.bytes += size


def _publish(channels: Channels, operation: Publish, client: int, now: float) -> int:
    channel = _find(channels, operation.channel, now)
    channel.publishers.add(client)
    body, priority, attributes = operation.body, operation.priority, operation.attributes
    if isinstance(channel, Topic):
        return channel.publish(body, now, client, priority, attributes)
    return channel.publish(body, now, client, priority, attributes, is_checked=True)


def _find(channels: Channels, channel: QueueKey | str, now: float) -> Queue | Topic:
    if isinstance(channel, str):
        return channels.topic_to_publish(channel, now)
    return channels.queue_to_publish(channel, now)


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
