"""What clients may say of a message, checked: a publisher in the attributes of its record, a worker as a reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.errors import BadRequest, TooLarge
from penstock.model.limits import SECONDS_MAX, UINT32_MAX, Limits
from penstock.model.names import checked_name, plain_text
from penstock.model.records import Attribute, Record
from penstock.model.settings import checked_seconds, checked_timeout
from penstock.model.stages import Stage

PRIORITY_DEFAULT = 4
LABEL_MAX = 2**64 - 1


@dataclass(slots=True)
class Publication:
    """All that can be said of a message besides its channel and body."""

    priority: int = PRIORITY_DEFAULT
    headers: Mapping[str, str] | None = None
    delay: float | None = None
    ttl: float | None = None
    key: str | None = None
    group: str | None = None
    dedup_id: str | None = None
    notify: Stage = Stage(0)
    label: int = 0

    def attributes(self, now: float, limits: Limits) -> dict[int, Any] | None:
        """Check everything, and return the attributes of the publish record, or None when there are none."""
        self.priority = checked_priority(self.priority)
        attributes: dict[int, Any] = {}
        if self.headers:
            attributes[Attribute.HEADERS] = checked_headers(self.headers, limits)
        if self.delay is not None and (delay := checked_seconds(self.delay, "delay")):
            attributes[Attribute.DUE] = now + delay
        if self.ttl is not None:
            attributes[Attribute.EXPIRES_AT] = now + checked_timeout(self.ttl, "ttl")
        if self.key is not None:
            attributes[Attribute.KEY] = checked_name(self.key, "key")
        if self.group is not None:
            attributes[Attribute.GROUP] = checked_name(self.group, "group")
        if self.dedup_id is not None:
            attributes[Attribute.DEDUP_ID] = checked_name(self.dedup_id, "dedup_id")
        if self.notify:
            attributes[Attribute.NOTIFY] = int(self.notify)
            attributes[Attribute.LABEL] = checked_label(self.label)
        return attributes or None


def checked_priority(priority: object) -> int:
    """Return the priority if it is an unsigned 32 bit integer."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= UINT32_MAX:
        raise BadRequest(f"priority is {priority!r}; it must be a whole number from 0 to {UINT32_MAX}", key="priority")
    return int(priority)


def checked_label(label: object) -> int:
    """Return the label if it is an unsigned 64 bit integer."""
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label <= LABEL_MAX:
        raise BadRequest(f"label is {label!r}; it must be a whole number from 0 to {LABEL_MAX}", key="label")
    return int(label)


def checked_body(body: object, limits: Limits) -> bytes:
    """Return the body as bytes if it is bytes-like and within its limit."""
    if type(body) is not bytes:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise BadRequest(f"the body must be bytes, not {type(body).__name__}", key="body")
        body = bytes(body)
    if len(body) > limits.body_bytes_max:
        raise TooLarge(
            f"the body has {len(body)} bytes; at most {limits.body_bytes_max} are allowed (body_bytes_max)",
            key="body",
            size=len(body),
            limit=limits.body_bytes_max,
        )
    return body


def checked_bodies(bodies: object, limits: Limits) -> list[bytes]:
    """Return a list of bodies if each is bytes-like and within its limit."""
    if isinstance(bodies, str | bytes | bytearray | memoryview) or not isinstance(bodies, Iterable):
        raise BadRequest(f"bodies must be a list of bytes, not {type(bodies).__name__}", key="bodies")
    return [checked_body(body, limits) for body in bodies]


def checked_headers(headers: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """Return a copy of the headers if all are texts and within their limits."""
    if not isinstance(headers, Mapping):
        raise BadRequest(f"headers must map texts to texts, not {type(headers).__name__}", key="headers")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadRequest(f"the header {name!r} must be a text with a text, not {value!r}", key="headers")
        try:
            size += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise BadRequest(f"the header {name!r} is not valid UTF-8", key="headers") from None
    if len(headers) > limits.headers_max:
        raise TooLarge(
            f"{len(headers)} headers are too many; at most {limits.headers_max} are allowed (headers_max)",
            key="headers",
            size=len(headers),
            limit=limits.headers_max,
        )
    if size > limits.header_bytes_max:
        raise TooLarge(
            f"the headers have {size} bytes; at most {limits.header_bytes_max} are allowed (header_bytes_max)",
            key="headers",
            size=size,
            limit=limits.header_bytes_max,
        )
    return {plain_text(name): plain_text(value) for name, value in headers.items()}


def checked_deadline(at: object, key: str) -> float:
    """Return a point in time, in seconds since the epoch, that some message may wait for."""
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= 2 * SECONDS_MAX:
        raise BadRequest(f"{key} is {at!r}; it must be seconds since 1970", key=key)
    return float(at)


def checked_reason(reason: object, limits: Limits) -> str:
    """Return why a message failed, cut to its limit, if it is a text."""
    if not isinstance(reason, str):
        raise BadRequest(f"reason must be a text, not {reason!r}", key="reason")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise BadRequest("reason is not valid UTF-8", key="reason") from None
    return plain_text(reason)[: limits.reason_characters_max]


def size_of(record: Record) -> int:
    """Return the bytes that a published message counts for: its body and its headers."""
    attributes = record[6]
    if attributes is None:
        return len(record[7])
    headers = attributes.get(Attribute.HEADERS)
    if not headers:
        return len(record[7])
    return len(record[7]) + sum(len(name) + len(value) for name, value in headers.items())
