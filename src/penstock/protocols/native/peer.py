"""The peer of a session: who it is, what it may do, and what it has in its hands."""

from penstock.engine.port import BrokerPort, Client, Queue
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, PermissionDenied
from penstock.model.message import Message, State
from penstock.model.names import NO_TAGS, QueueKey, checked_name, checked_tags, is_temporary
from penstock.protocols.native.answers import Answers
from penstock.protocols.native.messages import (
    UINT64_MAX,
    Alter,
    AskStatus,
    Create,
    Delete,
    Fail,
    Finish,
    Keepalive,
    Post,
    Reject,
    Release,
)

#: Names of queues that a peer is known to be permitted to publish to or consume from; the next one makes it begin afresh.
NAMES_MAX = 1000
#: Messages in its hands that are in other hands by now, before they are looked for.
_LOST_MAX = 1024

Settling = Finish | Fail | Release | Reject | Keepalive


class Held:
    """The messages that were sent to the peer and that it has not settled, by their sequence."""

    __slots__ = ("_again", "_client", "table")

    def __init__(self, client: Client) -> None:
        self._client = client
        self.table: dict[int, Message] = {message.sequence: message for message in client.held}
        #: Messages sent once more while the first is held: overlapping subscriptions to a topic do that.
        self._again: dict[int, list[Message]] = {}

    def add(self, message: Message) -> None:
        """Take note that a message was sent."""
        sequence = message.record[3]
        earlier = self.table.get(sequence)
        if earlier is not None and earlier.state is State.ASSIGNED and earlier is not message:
            self._again.setdefault(sequence, []).append(message)
        else:
            self.table[sequence] = message
        if len(self.table) > 2 * len(self._client.held) + _LOST_MAX:
            self._forget_lost()

    def remove(self, message: Message) -> None:
        """Take note that a message was settled; the next one of its number takes its place."""
        sequence = message.record[3]
        if self.table.get(sequence) is not message:
            return
        del self.table[sequence]
        if self._again:
            others = [other for other in self._again.pop(sequence, ()) if other.state is State.ASSIGNED]
            if others:
                self.table[sequence] = others.pop(0)
            if others:
                self._again[sequence] = others

    def forget(self) -> None:
        """Forget all of them, with the end of the connection."""
        self.table.clear()
        self._again.clear()

    def _forget_lost(self) -> None:
        self.table = {number: message for number, message in self.table.items() if message.state is State.ASSIGNED}


class Peer:
    """See the module."""

    __slots__ = ("access", "answers", "bytes", "client", "consumable", "engine", "held", "limits", "port", "targets")

    def __init__(self, port: BrokerPort, access: Access, answers: Answers, client: Client) -> None:
        self.port = port
        self.engine = port.engine
        self.limits = port.engine.limits
        self.access = access
        self.answers = answers
        self.client = client
        self.held = Held(client)
        #: Queues without tags that it may publish to, and names that it may consume from.
        self.targets: dict[str, QueueKey] = {}
        self.consumable: set[str] = set()
        #: Of bodies published in this wake-up.
        self.bytes = 0

    def target(self, queue: str) -> QueueKey:
        """Return the key of a queue without tags that the peer may publish to."""
        key = self.targets.get(queue)
        if key is None:
            key = QueueKey(checked_name(queue, "queue"), NO_TAGS)
            self._check(Action.PUBLISH, queue)
            if len(self.targets) >= NAMES_MAX:
                self.targets.clear()
            self.targets[queue] = key
        return key

    def check_consume(self, name: str, key: str) -> None:
        """Raise if the peer may not consume from queues of a name, or a topic."""
        if name not in self.consumable:
            self.access.check(Action.CONSUME, checked_name(name, key))
            if is_temporary(name):
                raise PermissionDenied("this temporary queue belongs to a connection", key=key, channel=name)
            if len(self.consumable) >= NAMES_MAX:
                self.consumable.clear()
            self.consumable.add(name)

    def channel(self, request: Post | Create | Alter | Delete | AskStatus, action: Action) -> QueueKey | str:
        """Return the queue, or the name of the topic, that a request means, if the peer may do this to it."""
        if request.topic is not None:
            if request.queue is not None:
                raise BadRequest("there are a queue and a topic; name one of them", key="topic")
            if request.tags:
                raise BadRequest("topics have no tags", key="tags")
            self.access.check(action, checked_name(request.topic, "topic"))
            return request.topic
        if request.queue is None:
            raise BadRequest("queue is missing: name a queue or a topic", key="queue")
        key = QueueKey(checked_name(request.queue, "queue"), checked_tags(request.tags))
        self._check(action, key.name)
        return key

    def _check(self, action: Action, queue: str) -> None:
        """Raise if the peer may not do this to a queue; whoever was told of a temporary one may answer to it."""
        if action is not Action.PUBLISH or not is_temporary(queue):
            self.access.check(action, queue)

    def message(self, request: Settling, sequence: int) -> Message:
        """Return the message that a request means, which the peer has or has had."""
        message = self.held.table.get(sequence)
        if message is not None and not request.shard:
            if request.queue is not None and request.queue != message.cursor.name:
                raise NoObject(
                    f"the message {sequence} is not of a queue {request.queue!r}", key="queue", sequence=sequence
                )
            return message
        checked_u64(sequence, "sequence")
        if request.shard:
            raise NoObject(f"there is no shard {request.shard}; there is shard 0", key="shard")
        return self._sought(sequence, request.queue)

    def _sought(self, sequence: int, queue: str | None) -> Message:
        """Return a message that the peer is not known to have, or say in whose hands it is."""
        queues: list[Queue] = self.engine.channels.by_name.get(queue, []) if queue is not None else []
        for one in queues:
            if one.holds(sequence):
                return one.assigned_to(sequence, self.client)
        where = "that you have" if queue is None else f"in a queue {queue!r}"
        raise NoObject(f"there is no unsettled message {sequence} {where}", key="sequence", sequence=sequence)


def checked_u64(number: int, key: str) -> int:
    """Return a number that is no less than 0, if it is not too large either."""
    if number > UINT64_MAX:
        raise BadRequest(f"{key} is {number}; it must be at most {UINT64_MAX}", key=key)
    return number
