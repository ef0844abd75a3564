"""Consumers, and how messages are handed out to them: fairly, by credit, in the order that each has asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.engine.cursor import Cursor
from penstock.engine.effects import Effects
from penstock.engine.groups import Group
from penstock.engine.ready import Passed
from penstock.model.errors import PenstockError
from penstock.model.limits import UINT32_MAX
from penstock.model.message import Message, State
from penstock.model.records import Record
from penstock.model.stages import Level

if TYPE_CHECKING:
    from penstock.engine.clients import Client
    from penstock.engine.queue import Queue

#: As a consumer's timeout: the lease that each queue gives.
OWN_LEASE = -1.0
#: Bodies handed to a consumer before its peer shows that it reads; those of the second size or less are not counted, since
#: all that is handed out at a time of these is not much more.
HANDED_BYTES_MAX, _SMALL_BYTES = 2**20, 4096
_CHOICES = 8  # consumers compared for the least loaded; more would cost more than the fairness is worth


class Consumer:
    """Someone who takes messages from one or more cursors: a subscription, or a fetch or pop that waits."""

    __slots__ = (
        "after_close",
        "client",
        "credit",
        "credit_bytes",
        "cursors",
        "due",
        "exclusive",
        "failure",
        "groups",
        "has_seen_all",
        "held_bytes",
        "inbox",
        "is_held",
        "is_open",
        "is_paused",
        "label",
        "level",
        "offers",
        "once",
        "on_ready",
        "passed",
        "selector",
        "settles",
        "taken",
        "takes_turns",
        "timeout",
        "unsettled",
    )

    def __init__(
        self,
        client: "Client",
        on_ready: Callable[["Consumer"], None],
        *,
        credit: int = 1,
        timeout: float | None = None,
        settles: bool = False,
        once: bool = False,
        takes_turns: bool = False,
        exclusive: bool = False,
        selector: Callable[[Record], bool] | None = None,
        level: Level = Level.READY,
        label: int | None = None,
    ) -> None:
        self.client = client
        #: Called by the broker, after a wake-up that put something into the inbox or ended the consumer.
        self.on_ready = on_ready
        self.credit = credit
        #: Bodies that it may hold unsettled, which stay in memory; one more than that, whatever its size.
        self.credit_bytes = UINT32_MAX
        #: Seconds of a lease; None: the connection is the lease; less than 0: as the queue has it.
        self.timeout = timeout
        #: Whether messages are settled as they are assigned.
        self.settles = settles
        #: Whether one message is all that it wants.
        self.once = once
        self.takes_turns = takes_turns
        self.exclusive = exclusive
        self.selector = selector
        #: What its selector has refused in each queue, and whether it was asked for all that waits there.
        self.passed: dict[Cursor, Passed] = {}
        self.has_seen_all = True
        #: How far an assignment must be persisted before the message is sent.
        self.level = level
        self.label = label
        self.cursors: dict[Cursor, None] = {}
        #: Groups of which it has messages, and heaps of (negated priority, place, turn, message) that may be next.
        self.groups: dict[Group, Queue] = {}
        self.offers: dict[Cursor, list[tuple[int, int, int, Message]]] = {}
        self.inbox: list[Message] = []
        #: Where assignments have to be persisted first: messages taken out of the inbox, and those that may be so far.
        self.taken = self.due = 0
        self.unsettled = 0
        self.held_bytes = 0
        self.is_paused = False
        #: Whether it takes nothing for now, whatever credit it has: its peer does not read.
        self.is_held = False
        self.is_open = True
        #: Called when it is closed, by whoever made it known elsewhere.
        self.after_close: Callable[[Consumer, float], None] | None = None
        #: Why it was ended, if not by itself.
        self.failure: PenstockError | None = None

    def again(self) -> "Consumer":
        """Return a consumer like this one, which was closed."""
        other = Consumer(
            self.client,
            self.on_ready,
            credit=self.credit,
            timeout=self.timeout,
            settles=self.settles,
            once=self.once,
            takes_turns=self.takes_turns,
            exclusive=self.exclusive,
            selector=self.selector,
            level=self.level,
            label=self.label,
        )
        other.passed = self.passed
        return other

    def wants(self, record: Record) -> bool:
        """Tell whether its selector takes a message."""
        return self.selector is None or self.selector(record)

    @property
    def has_no_room(self) -> bool:
        """Whether it holds as much as it may."""
        return self.unsettled >= self.credit or self.held_bytes >= self.credit_bytes

    @property
    def pops(self) -> bool:
        """Whether it is a pop that waits for one message."""
        return self.once and self.settles

    def take_out(self) -> list[Message]:
        """Return what came into the inbox, as far as the assignment is persisted as it was asked for.

        What lapsed while it waited for that is left out: it is on its way to somebody else.
        """
        if self.level is Level.READY:
            messages, self.inbox = self.inbox, []
            return messages
        count = self.due - self.taken
        messages = self.inbox[:count]
        del self.inbox[:count]
        self.taken += count
        return [message for message in messages if self.settles or message.state is State.ASSIGNED]

    def pause(self) -> None:
        """Take no more for now."""
        self.is_paused = True
        for cursor in self.cursors:
            cursor.available.pop(self, None)

    def give_back(self, message: Message, effects: Effects) -> None:
        """Take note that it no longer holds a message: there may be room for another."""
        self.unsettled -= 1
        self.held_bytes -= len(message.record[7])
        if self.is_paused:
            effects.hungry[self] = None

    def hold(self) -> None:
        """Take no more until it is let go, whatever is settled meanwhile."""
        self.is_held = True
        self.pause()

    def let_go(self, effects: Effects) -> None:
        """Take more again as far as its credit goes."""
        self.is_held = False
        if self.is_paused and self.is_open:
            effects.hungry[self] = None

    def resume(self) -> None:
        """Take more again."""
        self.is_paused = False
        for cursor in self.cursors:
            cursor.available[self] = None

    def join(self, cursor: Cursor) -> None:
        """Take from a cursor, too."""
        if cursor in self.cursors:
            return
        self.cursors[cursor] = None
        cursor.consumers[self] = None
        cursor.exclusives += self.exclusive
        if not self.is_paused:
            cursor.available[self] = None
            cursor.effects.dirty[cursor] = None

    def part(self, cursor: Cursor) -> None:
        """Take no more from a cursor."""
        del self.cursors[cursor]
        del cursor.consumers[self]
        cursor.exclusives -= self.exclusive
        cursor.available.pop(self, None)
        self.offers.pop(cursor, None)
        if self.is_open:
            self.passed.pop(cursor, None)
        if cursor.consumers:
            cursor.effects.dirty[cursor] = None  # it may have been in the way of others

    def close(self, now: float) -> None:
        """Take nothing more; what it holds stays with its client."""
        if not self.is_open:
            return
        self.is_open = False
        self.client.consumers.pop(self, None)
        for cursor in list(self.cursors):
            self.part(cursor)
        if self.after_close is not None:
            self.after_close(self, now)

    def lease_at(self, cursor: Cursor) -> float | None:
        """Return how long a lease on a message of this cursor is."""
        if self.timeout is not None and self.timeout < 0:
            return cursor.heartbeat_timeout
        return self.timeout


class Dispatcher:
    """Hands out what waits to whom it is due."""

    __slots__ = ("_effects", "_filled", "_handed")

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        #: Bytes of large bodies handed to each consumer in this run, and who takes no more in it.
        self._handed: dict[Consumer, int] = {}
        self._filled: list[Consumer] = []

    def run(self, now: float, limit: int) -> bool:
        """Hand out up to about `limit` messages; returns whether there is more to hand out."""
        self._hand_out(now, limit)
        effects = self._effects
        if self._handed:
            effects.hungry.update(dict.fromkeys(self._filled))
            self._handed.clear()
            self._filled.clear()
        return bool(effects.hungry or effects.dirty)

    def _hand_out(self, now: float, limit: int) -> None:
        effects = self._effects
        while (effects.hungry or effects.dirty) and limit > 0:
            # Listed first: taking the first of a dict again and again passes over all that went before, each time.
            for consumer in list(effects.hungry):
                if limit <= 0:
                    break
                effects.hungry.pop(consumer, None)
                limit -= self._feed(consumer, now, limit)
            for cursor in list(effects.dirty):
                if limit <= 0 or effects.hungry:
                    break
                effects.dirty.pop(cursor, None)
                limit -= self._serve(cursor, now, limit)

    def take_for(self, consumer: Consumer, now: float) -> Message | None:
        """Assign to a consumer the message that it should have next, of all its cursors."""
        cursors = consumer.cursors
        if consumer.takes_turns:
            for cursor in list(cursors):
                message = self._take(cursor, consumer, now)
                if message is not None:
                    del cursors[cursor]
                    cursors[cursor] = None  # to the end: the others go before it
                    return message
                if not consumer.has_seen_all:
                    break
            return None
        tried: set[Cursor] = set()
        while len(tried) < len(cursors):
            best = _foremost(consumer, tried)
            if best is None:
                return None
            message = self._take(best, consumer, now)
            if message is not None or not consumer.has_seen_all:
                return message
            tried.add(best)
        return None

    def _take(self, cursor: Cursor, consumer: Consumer, now: float) -> Message | None:
        consumer.has_seen_all = True
        if not _may_take(cursor, consumer):
            return None
        return cursor.take(consumer.client, now, consumer.lease_at(cursor), consumer, settle=consumer.settles)

    def _feed(self, consumer: Consumer, now: float, limit: int) -> int:
        """Give a consumer that has room again what waits for it; returns how many messages."""
        if not consumer.is_open or consumer.is_held or consumer.has_no_room:
            return 0
        if consumer.is_paused:
            consumer.resume()
        for given in range(limit):
            if consumer.is_paused:
                return given
            message = self.take_for(consumer, now)
            if message is None:
                if consumer.has_seen_all:
                    return given
                break
            self.deliver(consumer, message, now)
        self._effects.hungry[consumer] = None
        return limit

    def _serve(self, cursor: Cursor, now: float, limit: int) -> int:
        """Give what waits at a cursor to consumers that have room; returns how many messages."""
        given = 0
        passed: set[Consumer] = set()
        while cursor.waiting and cursor.available and given < limit:
            consumer = _least_loaded(cursor, passed)
            if consumer is None:
                return given
            if len(consumer.cursors) > 1:
                message = self.take_for(consumer, now)
            else:
                message = self._take(cursor, consumer, now)
            if message is None:
                if not consumer.has_seen_all:
                    given = limit  # others get their turn before it looks on
                    break
                passed.add(consumer)
                continue
            given += 1
            self.deliver(consumer, message, now)
        if given >= limit:
            self._effects.dirty[cursor] = None
        return given

    def deliver(self, consumer: Consumer, message: Message, now: float) -> None:
        """Put an assigned message into a consumer's inbox."""
        consumer.inbox.append(message)
        self._effects.touched[consumer] = None
        if consumer.settles:
            consumer.unsettled += 1
            if consumer.unsettled >= consumer.credit:
                consumer.pause()
        if consumer.once:
            consumer.close(now)
        elif len(message.record[7]) > _SMALL_BYTES:
            self._count(consumer, len(message.record[7]))

    def _count(self, consumer: Consumer, size: int) -> None:
        """Let a consumer that was handed much take no more in this run: meanwhile it shows whether its peer reads."""
        handed = self._handed[consumer] = self._handed.get(consumer, 0) + size
        if handed >= HANDED_BYTES_MAX and not consumer.is_paused:
            consumer.pause()
            self._filled.append(consumer)


def ignore(consumer: Consumer) -> None:
    """Take no note of a consumer's inbox, because nobody waits for it."""


def _may_take(cursor: Cursor, consumer: Consumer) -> bool:
    """Tell whether no exclusive consumer stands before this one."""
    if not cursor.exclusives:
        return True
    return next(other for other in cursor.consumers if other.exclusive) is consumer


def _foremost(consumer: Consumer, tried: set[Cursor]) -> Cursor | None:
    """Return the cursor whose first message has the highest priority, or is the oldest of these."""
    cursors = consumer.cursors
    if len(cursors) == 1:
        return next(iter(cursors))
    best, best_order = None, None
    for cursor in cursors:
        if cursor in tried or cursor.is_paused:
            continue
        order = cursor.ready.first() if cursor.ready.count else None
        if order is None and cursor.held_back and consumer.groups:
            order = (1, 0)  # messages held back for this consumer come after all that stands in the order
        if order is not None and (best_order is None or order < best_order):
            best, best_order = cursor, order
    return best


def _least_loaded(cursor: Cursor, passed: set[Consumer]) -> Consumer | None:
    """Return the consumer with the fewest unsettled messages among those next in turn, and put it last."""
    available = cursor.available
    best = None
    looked_at = 0
    for consumer in available:
        if consumer in passed:
            continue
        if best is None or consumer.unsettled < best.unsettled:
            best = consumer
            if not best.unsettled:
                break
        looked_at += 1
        if looked_at >= _CHOICES:
            break
    if best is not None and len(available) > 1:
        del available[best]
        available[best] = None
    return best
