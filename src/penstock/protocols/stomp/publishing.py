"""From the headers of a SEND to what is published."""

from collections.abc import Mapping

from penstock.model.errors import BadRequest
from penstock.model.publication import PRIORITY_DEFAULT, Publication
from penstock.model.settings import checked_count

#: Headers that are the broker's to say, or have done their work when the frame arrives.
_NOT_KEPT = frozenset(
    {
        "destination", "content-length", "receipt", "transaction", "message-id", "redelivered", "subscription", "ack",
        "delivery-count", "tags", "JMSXUserID", "JMSXDeliveryCount", "priority", "expires", "expiration", "ttl",
        "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "x-delay", "dedup-id", "key",
    }
)  # fmt: skip
_PRIORITY_MAX = 2**32 - 1


def decoded(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return headers as texts."""
    try:
        return {name.decode(): value.decode() for name, value in headers.items()}
    except UnicodeDecodeError:
        raise BadRequest("a header is not valid UTF-8", key="headers") from None


def publication_of(headers: Mapping[str, str], now: float) -> Publication:
    """Return what the headers of a SEND say of its message."""
    priority = _number(headers, "priority")
    return Publication(
        priority=PRIORITY_DEFAULT if priority is None else checked_count(int(priority), "priority", 0, _PRIORITY_MAX),
        headers={name: value for name, value in headers.items() if name not in _NOT_KEPT} or None,
        delay=_delay(headers, now),
        ttl=_ttl(headers, now),
        key=headers.get("key"),
        group=headers.get("JMSXGroupID") or headers.get("message_group"),
        dedup_id=headers.get("dedup-id"),
    )


def _delay(headers: Mapping[str, str], now: float) -> float | None:
    for name in ("AMQ_SCHEDULED_DELAY", "x-delay"):
        milliseconds = _number(headers, name)
        if milliseconds is not None:
            return milliseconds / 1000
    at = _number(headers, "AMQ_SCHEDULED_TIME")
    return None if at is None else max(0.0, at / 1000 - now)


def _ttl(headers: Mapping[str, str], now: float) -> float | None:
    expires = _number(headers, "expires")
    if expires:
        # What has expired on its way is still taken, so that its end shows where dead letters are looked for.
        return max(0.001, expires / 1000 - now)
    for name in ("expiration", "ttl"):
        milliseconds = _number(headers, name)
        if milliseconds:
            return milliseconds / 1000
    return None


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"the header {name} is {text!r}; it must be a whole number", key=name)
    return int(text)
