"""Messages and choices, between the words of the protocol and those of the engine."""

from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as AnyMessage

from penstock.engine.port import OWN_LEASE, Selection
from penstock.model.errors import BadRequest
from penstock.model.message import Message
from penstock.model.settings import checked_timeout
from penstock.model.stages import Level
from penstock.v1 import broker_pb2 as pb

_LEVELS = {pb.CONFIRM_READY: Level.READY, pb.CONFIRM_WRITE: Level.WRITE, pb.CONFIRM_SYNC: Level.SYNC}
_MATCHES = {
    pb.MATCH_UNSPECIFIED: "exact",
    pb.MATCH_EXACT: "exact",
    pb.MATCH_STRICT: "strict",
    pb.MATCH_COMBINED: "combined",
    pb.MATCH_ANY: "any",
}


Request = TypeVar("Request", bound=AnyMessage)


def read(kind: type[Request], data: bytes) -> Request:
    """Return the request that a peer has sent."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise BadRequest(f"these bytes are no {kind.DESCRIPTOR.name}", key="request") from None


def level_of(confirm: pb.Confirm, key: str, unspecified: Level) -> Level:
    """Return how far something must be persisted."""
    if not confirm:
        return unspecified
    level = _LEVELS.get(confirm)
    if level is None:
        raise BadRequest(f"{key} is {int(confirm)}; this broker knows no such value", key=key)
    return level


def selection_of(request: pb.PollRequest | pb.Subscription) -> Selection:
    """Return which queues are meant."""
    match = _MATCHES.get(request.match)
    if match is None:
        raise BadRequest(f"match is {int(request.match)}; this broker knows no such value", key="match")
    return Selection.checked(request.queue, request.tags.tags if request.HasField("tags") else None, match)


def lease_of(request: pb.PollRequest | pb.Subscription) -> float:
    """Return the seconds of leases."""
    return checked_timeout(request.work_timeout, "work_timeout") if request.HasField("work_timeout") else OWN_LEASE


def fill(told: pb.Message, message: Message) -> None:
    """Tell a message as it is handed out; assigning costs half as much as making it from arguments."""
    record, cursor = message.record, message.cursor
    told.body = record[7]
    told.priority = record[5]
    told.id = message.id
    told.sequence = record[3]
    told.published_at = record[2]
    told.attempt = message.attempt
    if message.redelivered:
        told.redelivered = True
    if cursor.is_queue:
        told.queue = cursor.name
        if cursor.tags:
            told.tags.extend(sorted(cursor.tags))
    else:
        told.topic = cursor.name
    if record[6] is not None:
        told.headers.update(message.headers)
