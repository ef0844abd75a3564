"""What a SUBSCRIBE asks for, and which durable subscriber an UNSUBSCRIBE means."""

from dataclasses import dataclass

from penstock.model.errors import BadRequest
from penstock.model.limits import Limits
from penstock.model.names import checked_name
from penstock.protocols.stomp.destinations import Destination, parsed
from penstock.protocols.stomp.headers import Texts, credit, first_sequence, flag, tags_of, work_timeout

AUTO, CLIENT, INDIVIDUAL = b"auto", b"client", b"client-individual"
ACK_MODES = {mode.decode(): mode for mode in (AUTO, CLIENT, INDIVIDUAL)}

#: Headers that name a durable subscriber, and those that make the id of a subscription its name.
_NAMING = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)
_MARKING = ("durable", "persistent")
#: What the broker says in a MESSAGE, which nothing that a publisher has said must be taken for.
SAID = frozenset(
    {
        "destination", "subscription", "tags", "ack", "message-id", "priority", "timestamp", "redelivered",
        "delivery-count", "expires", "content-length",
    }
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Wish:
    """What a SUBSCRIBE asks for, checked as far as that can be without the broker."""

    destination: Destination
    ack_mode: bytes
    credit: int
    work_timeout: float | None
    exclusive: bool
    no_local: bool
    selector: str | None
    tags: frozenset[str] | None
    match: str
    durable: str | None
    #: Whether it is durable only because `--durable-topics` makes every named subscriber so.
    durable_by_rule: bool
    from_sequence: int | None
    browses: bool
    browse_ends: bool
    #: Header that shows the sequence of each message.
    sequence_header: str | None


def wish_of(headers: Texts, ident: str, client_id: str, limits: Limits, *, durable_topics: bool) -> Wish:
    """Return what these headers ask for."""
    destination = parsed(headers["destination"])
    ack_mode = ACK_MODES.get(headers.get("ack", "auto"))
    if ack_mode is None:
        raise BadRequest("ack must be auto, client or client-individual", key="ack")
    durable = durable_name(headers, ident, client_id) if destination.is_topic else None
    by_rule = durable is None and durable_topics and destination.is_topic and bool(client_id)
    wish = Wish(
        destination=destination,
        ack_mode=ack_mode,
        credit=credit(headers, limits.credit_max),
        work_timeout=work_timeout(headers),
        exclusive=flag(headers, "exclusive", "activemq.exclusive"),
        no_local=flag(headers, "no-local", "activemq.noLocal"),
        selector=headers.get("selector") or None,
        tags=tags_of(headers),
        match=headers.get("match", "exact"),
        durable=_full_name(client_id, ident) if by_rule else durable,
        durable_by_rule=by_rule,
        from_sequence=first_sequence(headers),
        browses=flag(headers, "browser"),
        browse_ends="browser-end" not in headers or flag(headers, "browser-end"),
        sequence_header=headers.get("include-seq"),
    )
    _check(wish, headers)
    return wish


def _check(wish: Wish, headers: Texts) -> None:
    is_topic = wish.destination.is_topic
    if wish.browses and is_topic:
        raise BadRequest("a topic cannot be browsed; subscribe with from-seq to see what it retains", key="browser")
    if wish.from_sequence is not None and not (is_topic or wish.browses):
        raise BadRequest("from-seq goes with topics and with browser:true", key="from-seq")
    if wish.sequence_header is not None and (not wish.sequence_header or wish.sequence_header in SAID):
        raise BadRequest(
            f"include-seq is {wish.sequence_header!r}; it must name a header of its own, such as seq", key="include-seq"
        )
    if is_topic and (wish.tags is not None or "match" in headers):
        raise BadRequest("topics have no tags", key="tags")
    if not is_topic and any(headers.get(name) for name in _NAMING):
        raise BadRequest("durable subscribers are for topics; a queue keeps its messages anyway", key="destination")


def is_durable(headers: Texts) -> bool:
    """Tell whether headers speak of a durable subscriber."""
    return flag(headers, *_MARKING) or any(headers.get(name) for name in _NAMING)


def durable_name(headers: Texts, ident: str, client_id: str) -> str | None:
    """Return the name of the durable subscriber that headers speak of, in any of the spellings; None if of none."""
    for name in _NAMING:
        if headers.get(name):
            return _full_name(client_id, headers[name])
    if not flag(headers, *_MARKING):
        return None
    if "id" not in headers:
        raise BadRequest(
            "a durable subscriber is recognised by its id; SUBSCRIBE with an id that stays the same", key="id"
        )
    return _full_name(client_id, ident)


def _full_name(client_id: str, name: str) -> str:
    """Return the name under which a subscriber of this client is known, different for each pair."""
    full = f"{client_id.replace('%', '%25').replace('/', '%2F')}/{name}" if client_id else name
    return checked_name(full, "id")
