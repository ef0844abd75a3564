"""From the headers of a SEND to what is published."""

from penstock.model.errors import BadRequest
from penstock.model.limits import UINT32_MAX
from penstock.model.publication import PRIORITY_DEFAULT, Publication
from penstock.model.settings import checked_count
from penstock.protocols.stomp.headers import Texts, number

#: Headers that are the broker's to say, or have done their work when the frame arrives.
_NOT_KEPT = frozenset(
    {
        "destination", "content-length", "receipt", "transaction", "message-id", "redelivered", "subscription", "ack",
        "delivery-count", "timestamp", "tags", "JMSXUserID", "JMSXDeliveryCount", "priority", "expires", "expiration",
        "ttl", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "x-delay", "dedup-id", "key",
    }
)  # fmt: skip
#: What would be promised by taking these and doing nothing about them.
_REFUSED = ("AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON")
#: What has expired on its way is still taken, so that its end shows where dead letters are looked for. The span is so
#: short that it adds nothing to the time: nobody is handed such a message.
_TTL_MIN_SECONDS = 1e-9


def publication_of(headers: Texts, now: float) -> Publication:
    """Return what the headers of a SEND say of its message."""
    for name in _REFUSED:
        if name in headers:
            raise BadRequest(f"the header {name} is not known here: a message is published once", key=name)
    priority = number(headers, "priority")
    return Publication(
        priority=PRIORITY_DEFAULT if priority is None else checked_count(priority, "priority", 0, UINT32_MAX),
        headers={name: value for name, value in headers.items() if name not in _NOT_KEPT} or None,
        delay=_delay(headers, now),
        ttl=_ttl(headers, now),
        key=headers.get("key"),
        group=headers.get("JMSXGroupID") or headers.get("message_group"),
        dedup_id=headers.get("dedup-id"),
    )


def _delay(headers: Texts, now: float) -> float | None:
    for name in ("AMQ_SCHEDULED_DELAY", "x-delay"):
        milliseconds = number(headers, name)
        if milliseconds is not None:
            return milliseconds / 1000
    at = number(headers, "AMQ_SCHEDULED_TIME")
    return None if at is None else max(0.0, at / 1000 - now)


def _ttl(headers: Texts, now: float) -> float | None:
    expires = number(headers, "expires")
    if expires:
        return max(_TTL_MIN_SECONDS, expires / 1000 - now)
    for name in ("expiration", "ttl"):
        milliseconds = number(headers, name)
        if milliseconds:
            return milliseconds / 1000
    return None
