"""Message groups of a queue: messages of one group go in order, to one consumer at a time.

Of a group that nobody works on, the first message stands in the queue's order and the others are held back behind it.
While a subscription works on a group, more of it may go to that same subscription; a client that fetches one by one
gets the next when it has settled the last. After a failure nothing more goes out until all that is out is settled,
so that the failed message comes first again; one that waits for its retry keeps its group waiting.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.model.message import Message, State

if TYPE_CHECKING:
    from penstock.engine.consumers import Consumer
    from penstock.engine.queue import Queue


class Group:
    """One group with messages that wait or are out."""

    __slots__ = ("active", "broken", "head", "name", "owner", "retrying", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        #: The message of it that stands in the queue's order.
        self.head: Message | None = None
        #: Heap of (negated priority, place, sequence, message) held back.
        self.waiting: list[tuple[int, int, int, Message]] = []
        self.active = 0  # messages that are out
        self.owner: Consumer | None = None
        self.broken = False  # one of those out has failed
        self.retrying = 0  # failed ones whose time has not come

    def next(self) -> Message | None:
        """Return the first message held back."""
        while self.waiting:
            message = self.waiting[0][3]
            if message.state is State.WAITING:
                return message
            heappop(self.waiting)
        return None


class Groups:
    """The groups of one queue."""

    __slots__ = ("_by_name", "_queue", "_turn")

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._turn = 0
        self._by_name: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, message: Message, *, retried: bool) -> None:
        """Let a message wait in its group; `retried` when the group was kept waiting for it."""
        group = self._group(message)
        if retried:
            group.retrying -= 1
        if message.redelivered and group.active:
            group.broken = True
        heappush(group.waiting, (-message.priority, message.place, message.record[3], message))
        self._queue.held_back += 1
        self._step(group)
        if group.owner is not None and group.waiting[0][3] is message:
            self._offer_next(group)

    def will_retry(self, message: Message) -> None:
        """Keep the group waiting until this failed message comes back."""
        group = self._group(message)
        group.retrying += 1
        group.broken = group.active > 0

    def out(self, message: Message) -> None:
        """Take note that a message was assigned, to its consumer if it has one."""
        group = self._group(message)
        if group.head is message:
            group.head = None
        else:
            self._queue.held_back -= 1
        group.active += 1
        group.owner = message.consumer
        if message.consumer is not None:
            message.consumer.groups[group] = self._queue
            self._offer_next(group)

    def back(self, message: Message) -> None:
        """Take note that a message is no longer assigned."""
        group = self._group(message)
        group.active -= 1
        if not group.active:
            if group.owner is not None:
                group.owner.groups.pop(group, None)
            group.owner = None
            group.broken = False

    def hold(self, name: str) -> None:
        """Let nothing of a group step forward until it is let go: one of its messages is being replaced."""
        self._named(name).retrying += 1

    def let_go(self, name: str) -> None:
        """Let a group go on that was held."""
        group = self._by_name[name]
        group.retrying -= 1
        self._step(group)
        self._offer_next(group)

    def settled(self, name: str) -> None:
        """Let the group go on after one of its messages was settled."""
        group = self._by_name.get(name)
        if group is not None:
            self._step(group)

    def removed(self, message: Message, *, delayed: bool) -> None:
        """Forget a message that was taken out while it waited."""
        group = self._group(message)
        if delayed:
            if message.redelivered:
                group.retrying -= 1
        elif group.head is message:
            group.head = None
            self._queue.ready.withdraw_message(message.priority)
        else:
            self._queue.held_back -= 1
        self._step(group)

    def passed(self, message: Message) -> None:
        """Forget a message that stood in the queue's order and was taken out of it, not to be assigned."""
        self._group(message).head = None

    def best_for(self, consumer: "Consumer", now: float) -> Message | None:
        """Return the first message held back that may go to a consumer because it has others of the group."""
        if consumer.selector is not None:
            return self._best_wanted(consumer, now)
        offers = consumer.offers.get(self._queue)
        while offers:
            message = offers[0][3]
            group = self._by_name.get(message.group or "")
            following = None
            if group is not None and group.owner is consumer and not group.broken and not group.retrying:
                following = self._next_unexpired(group, now)
                if following is message:
                    return message
            heappop(offers)
            if group is not None and following is not None:
                self._offer_next(group)
        return None

    def _best_wanted(self, consumer: "Consumer", now: float) -> Message | None:
        best: Message | None = None
        for group, queue in consumer.groups.items():
            if queue is self._queue and not group.broken and not group.retrying:
                message = self._next_unexpired(group, now)
                if message is None or not consumer.wants(message.record):
                    continue
                if best is None or _order(message) < _order(best):
                    best = message
        return best

    def _offer_next(self, group: Group) -> None:
        """Let who has some of a group have the next of it; whether that still holds is seen when it is taken."""
        owner, message = group.owner, group.next()
        if owner is not None and message is not None and not group.broken and not group.retrying:
            self._turn += 1
            offer = (-message.priority, message.place, self._turn, message)
            heappush(owner.offers.setdefault(self._queue, []), offer)

    def _next_unexpired(self, group: Group, now: float) -> Message | None:
        message = group.next()
        while message is not None and message.expires_at <= now:
            self._queue.expire(message.record[3], now)
            message = group.next()
        return message

    def take(self, message: Message) -> None:
        """Take the first message held back out of its group, to be assigned."""
        heappop(self._group(message).waiting)

    def clear(self) -> None:
        """Drop all that waits."""
        for group in list(self._by_name.values()):
            group.waiting.clear()
            group.head = None
            group.retrying = 0
            self._step(group)

    def _group(self, message: Message) -> Group:
        name = message.group
        assert name is not None  # noqa: S101  # only messages with a group come here
        return self._named(name)

    def _named(self, name: str) -> Group:
        group = self._by_name.get(name)
        if group is None:
            group = self._by_name[name] = Group(name)
        return group

    def _step(self, group: Group) -> None:
        """Put the group's next message into the order if its turn has come; forget a group that is through."""
        message = group.next()
        if message is None:
            if not group.active and group.head is None and not group.retrying:
                self._by_name.pop(group.name, None)
        elif not group.active and group.head is None and not group.retrying:
            heappop(group.waiting)
            group.head = message
            self._queue.held_back -= 1
            self._queue.ready.put_back(message, message.priority)
        self._queue.effects.dirty[self._queue] = None


def _order(message: Message) -> tuple[int, int]:
    return (-message.priority, message.place)


class SleepingGroups(Groups):
    """The groups of a queue that is being restored: who may go next is settled when everything is known."""

    __slots__ = ()

    def add(self, message: Message, *, retried: bool) -> None:
        """Let the message wait nowhere for now."""

    def will_retry(self, message: Message) -> None:
        """Take no note."""

    def out(self, message: Message) -> None:
        """Take no note."""

    def back(self, message: Message) -> None:
        """Take no note."""

    def settled(self, name: str) -> None:
        """Take no note."""

    def removed(self, message: Message, *, delayed: bool) -> None:
        """Take no note."""

    def clear(self) -> None:
        """Have nothing to drop."""
