"""Posts: what a client says of a message, and how it is told what became of it."""

from typing import Any

from penstock.engine.port import Publish
from penstock.model.access import Action
from penstock.model.errors import BadRequest, TooLarge
from penstock.model.names import QueueKey
from penstock.model.publication import Publication
from penstock.model.stages import Stage, checked_stages
from penstock.protocols.native.json import body_of
from penstock.protocols.native.messages import Post
from penstock.protocols.native.peer import Peer

#: Sets of stages by their names, as far as somebody has asked for them.
_STAGES: dict[frozenset[str], Stage] = {}


def post(peer: Peer, request: Post, now: float) -> None:
    """Publish a message."""
    peer.port.check_room()
    body: Any = request.message
    if body.__class__ is not bytes:
        body = body_of(body)
    if len(body) > peer.limits.body_bytes_max:
        raise _too_large(len(body), peer.limits.body_bytes_max)
    peer.bytes += len(body)
    label = request.label
    queue = request.queue
    if queue is None or _says_more(request):
        channel, attributes = _with_care(peer, request, now)
        if isinstance(channel, str):
            sequence = peer.engine.publish_topic(channel, body, now, peer.client, request.priority, attributes)
        else:
            sequence = peer.engine.publish_fast(channel, body, now, peer.client, request.priority, attributes)
        if request.notify:
            return
    else:
        key = peer.targets.get(queue) or peer.target(queue)
        sequence = peer.engine.publish_fast(key, body, now, peer.client, request.priority, None)
    if label is not None:
        peer.answers.synced.append(peer.answers.writer.ok(label, sequence))


def operation_of(peer: Peer, request: Post, now: float) -> Publish:
    """Return what a post of a batch does."""
    body = body_of(request.message)
    if len(body) > peer.limits.body_bytes_max:
        raise _too_large(len(body), peer.limits.body_bytes_max)
    channel, attributes = _with_care(peer, request, now)
    return Publish(channel, body, request.priority, attributes)


def _says_more(request: Post) -> bool:
    """Tell whether a post says anything of its message besides queue, body, priority and label."""
    return bool(
        request.notify
        or request.tags
        or request.topic is not None
        or request.headers
        or request.delay
        or request.ttl is not None
        or request.key is not None
        or request.group is not None
        or request.dedup_id is not None
    )


def _with_care(peer: Peer, request: Post, now: float) -> tuple[QueueKey | str, dict[int, Any] | None]:
    """Return where a message goes, and the attributes of its record."""
    channel = _channel(peer, request)
    if isinstance(channel, str):
        for name in ("key", "group"):
            if getattr(request, name) is not None:
                raise BadRequest(f"a message to a topic has no {name}", key=name)
    if request.notify and request.label is None:
        raise BadRequest("label is missing: without one, notices cannot say which message they mean", key="label")
    publication = Publication(
        request.priority,
        request.headers,
        request.delay or None,
        request.ttl,
        request.key,
        request.group,
        request.dedup_id,
        _stages(request.notify),
        request.label or 0,
    )
    return channel, publication.attributes(now, peer.limits)


def _channel(peer: Peer, request: Post) -> QueueKey | str:
    """Return where a message goes; a queue without tags is known from before, mostly."""
    queue = request.queue
    if queue is None or request.tags or request.topic is not None:
        return peer.channel(request, Action.PUBLISH)
    return peer.targets.get(queue) or peer.target(queue)


def _stages(names: tuple[str, ...]) -> Stage:
    """Return the set of the named stages, in whatever order and however often they are named."""
    chosen = frozenset(names)
    stages = _STAGES.get(chosen)
    if stages is None:
        stages = _STAGES[chosen] = checked_stages(chosen)
    return stages


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"the message has {size} bytes; at most {limit} are allowed (body_bytes_max)",
        key="message",
        size=size,
        limit=limit,
    )
