"""Messages and choices, between the words of the protocol and those of the engine."""

from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as AnyMessage

from penstock.engine.port import OWN_LEASE, Selection
from penstock.model.errors import BadRequest, TooLarge
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


#: A request that carries no body has no more bytes: what is made of them takes many times as much memory.
REQUEST_BYTES_MAX = 4 * 2**20
_CARRIERS = (pb.EnqueueRequest, pb.EnqueueStreamRequest)

Request = TypeVar("Request", bound=AnyMessage)


def read(kind: type[Request], data: bytes) -> Request:
    """Return the request that a peer has sent."""
    if len(data) > REQUEST_BYTES_MAX and not issubclass(kind, _CARRIERS):
        raise TooLarge(
            f"a {kind.DESCRIPTOR.name} of {len(data)} bytes is too large; at most {REQUEST_BYTES_MAX} are allowed",
            key="request",
            size=len(data),
            limit=REQUEST_BYTES_MAX,
        )
    try:
        return kind.FromString(data)
    except DecodeError:
        raise BadRequest(f"these bytes are no {kind.DESCRIPTOR.name}", key="request") from None


def has_more_fields(data: bytes, most: int) -> bool:
    """Tell whether a request has more fields than that, without reading it: millions of empty ones hold everybody up."""
    at = fields = 0
    end = len(data) if len(data) > 2 * most else 0  # a field has two bytes at least
    while at < end and fields <= most:
        tag, at = _number(data, at)
        fields += 1
        kind = tag & 7
        if kind in {0, 2}:
            number, at = _number(data, at)
            at += number if kind == 2 else 0
        else:
            at += {1: 8, 5: 4}.get(kind, 0)
    return fields > most


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that stands at a place, and where the next field goes on."""
    number = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return number, at


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
