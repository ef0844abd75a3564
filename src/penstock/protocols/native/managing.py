"""Queues and topics: making, changing, emptying and deleting them, and looking at their state."""

from penstock.engine.port import queue_status, topic_status
from penstock.model.access import Action
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.settings import QueueSettings
from penstock.model.stages import Level
from penstock.protocols.native.messages import Alter, AskStatus, Create, Delete, Purge, Status
from penstock.protocols.native.peer import Peer


def create(peer: Peer, request: Create, now: float) -> None:
    """Make a queue or a topic; one that exists is left as it is, unless it is to be made exclusively."""
    channel, channels = peer.channel(request, Action.ADMINISTER), peer.engine.channels
    _check_dead_letter(peer, request)
    if isinstance(channel, str):
        channels.create_topic(channel, now, request.settings, exclusive=request.exclusive)
    else:
        channels.create_queue(channel, now, request.settings, exclusive=request.exclusive)
    peer.answers.confirm(request.label, Level.SYNC)


def alter(peer: Peer, request: Alter, now: float) -> None:
    """Change settings of a queue or a topic."""
    channel, channels = peer.channel(request, Action.ADMINISTER), peer.engine.channels
    _check_dead_letter(peer, request)
    if isinstance(channel, str):
        channels.alter_topic(channels.topic(channel), now, request.settings)
    else:
        peer.engine.alter(channel, now, request.settings)
    peer.answers.confirm(request.label, Level.SYNC)


def delete(peer: Peer, request: Delete, now: float) -> None:
    """Delete a queue or a topic with all that is in it."""
    channel, engine = peer.channel(request, Action.ADMINISTER), peer.engine
    if isinstance(channel, str):
        count = engine.subscriptions.delete_topic(engine.channels.topic(channel), now)
    else:
        count = engine.delete(channel, now)
    peer.answers.confirm(request.label, Level.SYNC, count)


def purge(peer: Peer, request: Purge, now: float) -> None:
    """Drop all that waits in a queue."""
    key = QueueKey(checked_name(request.queue, "queue"), checked_tags(request.tags))
    peer.access.check(Action.ADMINISTER, key.name)
    channels = peer.engine.channels
    count = channels.purge_queue(channels.queue(key), now)
    peer.answers.confirm(request.label, Level.SYNC, count)


def status(peer: Peer, request: AskStatus, now: float) -> None:
    """Tell the state of a queue or a topic."""
    channel, engine = peer.channel(request, Action.ADMINISTER), peer.engine
    clients = engine.clients.by_number
    if isinstance(channel, str):
        state = topic_status(engine.channels.topic(channel), clients).as_dict()
    else:
        state = queue_status(engine.channels.queue(channel), engine.channels.queues, now, clients).as_dict()
    peer.answers.say(Status(label=request.label, status=state))


def _check_dead_letter(peer: Peer, request: Create | Alter) -> None:
    """Raise if dead letters are to go where the peer may not publish: its own rejects would be a way around that."""
    name = request.settings.get("dead_letter")
    if isinstance(name, str) and name != QueueSettings.defaults(request.queue or "").dead_letter:
        peer.access.check(Action.PUBLISH, name)
