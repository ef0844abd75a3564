"""Publishing: one message, or the messages of a batch."""

from penstock.model.access import Action
from penstock.model.errors import BadRequest, PenstockError, TooLarge
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.publication import PRIORITY_DEFAULT, Publication
from penstock.model.receipt import Receipt
from penstock.protocols.grpc.callers import Caller
from penstock.v1 import broker_pb2 as pb

Channel = QueueKey | str


def enqueue(caller: Caller, request: pb.EnqueueRequest, now: float) -> pb.EnqueueResponse:
    """Publish a message."""
    caller.port.check_room()
    message = request.message
    response = pb.EnqueueResponse()
    if message.queue and message.body and len(message.ListFields()) == 2:
        response.receipt.sequence = _publish_body(caller, message.body, caller.target(message.queue), now)
        return response
    receipt = _publish(caller, message, None, now)
    response.receipt.sequence, response.receipt.duplicate = receipt.sequence, receipt.duplicate
    return response


def enqueue_batch(caller: Caller, request: pb.EnqueueStreamRequest, now: float) -> pb.EnqueueStreamResponse:
    """Publish the messages of a batch, each for itself."""
    caller.port.check_room()
    most = caller.limits.transaction_operations_max
    if len(request.messages) > most:
        raise too_many(most)
    otherwise = _channel(caller, request) if request.WhichOneof("channel") else None
    response = pb.EnqueueStreamResponse()
    sequences: list[int] = []
    for place, message in enumerate(request.messages):
        try:
            if otherwise is not None and message.body and len(message.ListFields()) == 1:
                sequences.append(_publish_body(caller, message.body, otherwise, now))
                continue
            receipt = _publish(caller, message, otherwise, now)
        except PenstockError as error:
            response.refusals.add(place=place, code=error.code, key=error.key or "", text=error.message)
            sequences.append(0)
            continue
        sequences.append(receipt.sequence)
        if receipt.duplicate:
            response.duplicates.append(place)
    response.sequences.extend(sequences)
    return response


def too_many(most: int) -> TooLarge:
    """Return the error that a batch has more messages than it may."""
    return TooLarge(
        f"the batch has too many messages; at most {most} are allowed (transaction_operations_max)",
        key="messages",
        limit=most,
    )


def _publish_body(caller: Caller, body: bytes, channel: Channel, now: float) -> int:
    """Publish a message of which nothing else is said, as of most; returns its sequence."""
    _check_size(caller, body)
    engine, client = caller.engine, caller.client
    if isinstance(channel, str):
        return engine.publish_topic(channel, body, now, client, PRIORITY_DEFAULT, None)
    return engine.publish(channel, body, now, client, PRIORITY_DEFAULT, None)


def _publish(caller: Caller, message: pb.NewMessage, otherwise: Channel | None, now: float) -> Receipt:
    body = message.body
    _check_size(caller, body)
    channel = otherwise if otherwise is not None and not message.WhichOneof("channel") else _channel(caller, message)
    publication = _publication(message)
    attributes = publication.attributes(now, caller.limits)
    channels = caller.engine.channels
    if isinstance(channel, str):
        for name in ("key", "group"):
            if getattr(publication, name) is not None:
                raise BadRequest(f"a message to a topic has no {name}", key=name)
    where = (
        channels.topic_to_publish(channel, now) if isinstance(channel, str) else channels.queue_to_publish(channel, now)
    )
    first = None if attributes is None else where.seen(attributes, now)
    if first is not None:
        return Receipt(0, first, duplicate=True)
    return Receipt(0, caller.engine.publish_on(where, body, now, caller.client, publication.priority, attributes))


def _publication(message: pb.NewMessage) -> Publication:
    """Return what is said of a message besides its channel and body."""
    says = message.HasField
    return Publication(
        message.priority if says("priority") else PRIORITY_DEFAULT,
        dict(message.headers) if message.headers else None,
        message.delay or None,
        message.ttl if says("ttl") else None,
        message.key if says("key") else None,
        message.group if says("group") else None,
        message.dedup_id if says("dedup_id") else None,
    )


def _channel(caller: Caller, named: pb.NewMessage | pb.EnqueueStreamRequest) -> Channel:
    """Return where messages go, if the caller may publish there."""
    kind = named.WhichOneof("channel")
    if kind == "queue":
        if not named.tags:
            return caller.target(named.queue)
        key = QueueKey(checked_name(named.queue, "queue"), checked_tags(named.tags))
        caller.check(Action.PUBLISH, key.name)
        return key
    if kind is None:
        raise BadRequest("queue is missing: name a queue or a topic", key="queue")
    if named.tags:
        raise BadRequest("topics have no tags", key="tags")
    topic = checked_name(named.topic, "topic")
    caller.check(Action.PUBLISH, topic)
    return topic


def _check_size(caller: Caller, body: bytes) -> None:
    limit = caller.limits.body_bytes_max
    if len(body) > limit:
        raise TooLarge(
            f"the message has {len(body)} bytes; at most {limit} are allowed (body_bytes_max)",
            key="body",
            size=len(body),
            limit=limit,
        )
