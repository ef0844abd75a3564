"""Callers: the users behind calls, and what they have in their hands by `Poll`.

A call has no connection that it belongs to. So each user is one client of the engine, for as long as the broker runs and
after a restart again; a lease tells each handing-out of a message to it from all others.
"""

from collections.abc import Callable
from hashlib import blake2b

from penstock.engine.port import BrokerPort, Client
from penstock.model.access import Access, Action
from penstock.model.errors import NoObject, NotAssigned, PermissionDenied
from penstock.model.message import Message, State
from penstock.model.names import NO_TAGS, QueueKey, checked_name, checked_tags, is_temporary
from penstock.v1 import broker_pb2 as pb

#: Channels that a caller is known to be permitted to publish to; the next one makes it begin afresh.
TARGETS_MAX = 1000
#: Leases whose messages are in other hands by now, before they are looked for.
_LOST_MAX = 1024
_COUNTER_BITS = 40


class Callers:
    """All callers, by the name of the user."""

    def __init__(self, port: BrokerPort, new_id: Callable[[], bytes]) -> None:
        self._port = port
        self._callers: dict[str, Caller] = {}
        #: Where the numbers of leases begin; those given before a restart are others.
        self._first_number = int.from_bytes(new_id()[:3]) << _COUNTER_BITS | 1

    def of(self, access: Access) -> "Caller":
        """Return the caller who has logged in with this."""
        caller = self._callers.get(access.user)
        if caller is None:
            caller = self._callers[access.user] = Caller(self._port, self._client(access.user), self._first_number)
            caller.client.on_close = lambda: self._forget(access.user)
        if caller.access is not access:
            caller.access = access
            caller.targets.clear()
        return caller

    def leave(self) -> None:
        """Let everybody go in good order: what they hold waits again, and does not count as failed."""
        clients, now = self._port.engine.clients, self._port.now()
        for caller in self._callers.values():
            clients.leave(caller.client, now)
        self._callers.clear()
        self._port.touch()

    def _client(self, user: str) -> Client:
        """Return the client of a user: one of before a restart with what it held, or a new one."""
        clients, now = self._port.engine.clients, self._port.now()
        ident = blake2b(user.encode(), digest_size=16, person=b"penstock.grpc").digest()
        known = clients.find(ident, user)
        if known is None:
            return clients.connect(now, ident, user=user, returns=True)
        clients.resume(known, now)
        return known

    def _forget(self, user: str) -> None:
        """Begin afresh with a user whose client was resumed at another door."""
        self._callers.pop(user, None)


class Caller:
    """See the module."""

    __slots__ = ("_given", "_next_number", "access", "client", "engine", "limits", "port", "targets")

    def __init__(self, port: BrokerPort, client: Client, first_number: int) -> None:
        self.port = port
        self.engine = port.engine
        self.limits = port.engine.limits
        self.client = client
        self.access: Access | None = None
        #: Queues without tags that it may publish to.
        self.targets: dict[str, QueueKey] = {}
        #: By sequence: the last handing-out of a message to it, and its number.
        self._given: dict[int, tuple[int, Message]] = {}
        self._next_number = first_number

    def check(self, action: Action, name: str) -> None:
        """Raise if the caller may not do this to a channel; whoever was told of a temporary queue may answer to it."""
        if is_temporary(name) and action is not Action.ADMINISTER:
            if action is Action.CONSUME:
                raise PermissionDenied("this temporary queue belongs to a connection", key="queue", channel=name)
            return
        assert self.access is not None  # noqa: S101  # set before anybody is given the caller
        self.access.check(action, name)

    def target(self, queue: str) -> QueueKey:
        """Return the key of a queue without tags that the caller may publish to."""
        key = self.targets.get(queue)
        if key is None:
            key = QueueKey(checked_name(queue, "queue"), NO_TAGS)
            self.check(Action.PUBLISH, queue)
            if len(self.targets) >= TARGETS_MAX:
                self.targets.clear()
            self.targets[queue] = key
        return key

    def leased(self, message: Message) -> pb.Lease:
        """Take note that a message is handed out by `Poll`, and return what names this."""
        number = self._next_number
        self._next_number += 1
        self._given[message.sequence] = number, message
        if len(self._given) > 2 * len(self.client.held) + _LOST_MAX:
            self._forget_lost()
        return pb.Lease(
            queue=message.cursor.name,
            tags=message.tags,
            sequence=message.sequence,
            attempt=message.attempt,
            number=number,
        )

    def message(self, lease: pb.Lease) -> Message:
        """Return the message that a lease names, which the caller has or had last, or say in whose hands it is."""
        key = QueueKey(checked_name(lease.queue, "lease.queue"), checked_tags(lease.tags))
        sequence, number = lease.sequence, lease.number
        if lease.shard:
            raise NoObject(f"there is no shard {lease.shard}; there is shard 0", key="lease.shard")
        given = self._given.get(sequence)
        if given is not None and given[1].cursor.key == key:
            if number not in {0, given[0]}:
                raise _lost(sequence)
            return given[1]
        message = self.engine.find_assigned(key, sequence, self.client)
        if number and message.attempt != lease.attempt:
            raise _lost(sequence)
        return message

    def settled(self, message: Message) -> None:
        """Take note that a message was settled."""
        self._given.pop(message.sequence, None)

    def _forget_lost(self) -> None:
        self._given = {
            sequence: given
            for sequence, given in self._given.items()
            if given[1].state is State.ASSIGNED or given[1].cursor.lapsed.get(sequence) is given[1]
        }


def _lost(sequence: int) -> NotAssigned:
    return NotAssigned(
        f"the message {sequence} was handed out again since; this lease names it no longer",
        key="lease.number",
        sequence=sequence,
    )
