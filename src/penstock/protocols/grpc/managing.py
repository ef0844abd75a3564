"""Making and deleting queues, and looking at the state of channels."""

from typing import Any

from penstock.engine.port import queue_status, topic_status
from penstock.model.access import Action
from penstock.model.errors import BadRequest
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.settings import QueueSettings
from penstock.protocols.grpc.callers import Caller
from penstock.v1 import broker_pb2 as pb

#: Settings that can be none, which is told by a 0 or an empty text.
_OR_NONE = frozenset({"retry_limit", "dead_letter", "max_length", "max_bytes", "ttl"})


def create_queue(caller: Caller, request: pb.CreateQueueRequest, now: float) -> pb.CreateQueueResponse:
    """Make a queue; one that exists is left as it is, unless it is to be made exclusively."""
    key, channels = _queue(caller, request), caller.engine.channels
    settings = _settings(request.settings)
    dead_letter = settings.get("dead_letter")
    if dead_letter is not None and dead_letter != QueueSettings.defaults(key.name).dead_letter:
        caller.check(Action.PUBLISH, dead_letter)  # own rejects would be a way around that
    existed = key in channels.queues
    channels.create_queue(key, now, settings, exclusive=request.exclusive)
    return pb.CreateQueueResponse(created=not existed)


def delete_queue(caller: Caller, request: pb.DeleteQueueRequest, now: float) -> pb.DeleteQueueResponse:
    """Delete a queue with all that is in it."""
    return pb.DeleteQueueResponse(messages=caller.engine.delete(_queue(caller, request), now))


def get_status(caller: Caller, request: pb.GetStatusRequest, now: float) -> pb.GetStatusResponse:
    """Tell the state of a queue or a topic."""
    kind = request.WhichOneof("channel")
    if kind == "queue":
        return pb.GetStatusResponse(queue=_queue_status(caller, _queue(caller, request), now))
    if kind is None:
        raise BadRequest("queue is missing: name a queue or a topic", key="queue")
    if request.tags:
        raise BadRequest("topics have no tags", key="tags")
    topic = checked_name(request.topic, "topic")
    caller.check(Action.ADMINISTER, topic)
    return pb.GetStatusResponse(topic=_topic_status(caller, topic))


def _queue(caller: Caller, request: pb.CreateQueueRequest | pb.DeleteQueueRequest | pb.GetStatusRequest) -> QueueKey:
    key = QueueKey(checked_name(request.queue, "queue"), checked_tags(request.tags))
    caller.check(Action.ADMINISTER, key.name)
    return key


def _settings(settings: pb.QueueSettings) -> dict[str, Any]:
    """Return what is set."""
    given = {field.name: value for field, value in settings.ListFields()}
    return {name: None if name in _OR_NONE and not value else value for name, value in given.items()}


def _queue_status(caller: Caller, key: QueueKey, now: float) -> pb.QueueStatus:
    channels = caller.engine.channels
    state = queue_status(channels.queue(key), channels.queues, now, caller.engine.clients.by_number)
    settings = {name: _none_told(name, value) for name, value in state.settings.items()}
    fields = {**state.as_dict(), "settings": pb.QueueSettings(**settings)}
    return pb.QueueStatus(**fields)


def _none_told(name: str, value: Any) -> Any:
    if value is None:
        return "" if name == "dead_letter" else 0
    return value


def _topic_status(caller: Caller, name: str) -> pb.TopicStatus:
    state = topic_status(caller.engine.channels.topic(name), caller.engine.clients.by_number)
    return pb.TopicStatus(
        topic=state.topic,
        publishers=state.publishers,
        subscribers=[
            pb.Subscriber(
                name=subscriber.name,
                pattern=subscriber.pattern,
                connected=subscriber.connected,
                waiting=subscriber.waiting,
                assigned=subscriber.assigned,
            )
            for subscriber in state.subscribers
        ],
        kept=state.kept,
        waiting=state.waiting,
        bytes=state.bytes,
        totals=state.totals,
    )
