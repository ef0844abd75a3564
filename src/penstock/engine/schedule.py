"""What becomes due when: delays and expiries by their time, leases by their timeout."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

from penstock.model.message import Message

Key = TypeVar("Key", bound=Hashable)

_STALE_MIN = 64  # entries called off that are not worth a rebuild


class Schedule(Generic[Key]):
    """Keys with the time at which each is due; what is called off costs nothing that stays."""

    __slots__ = ("_heap", "_times", "_turn")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Key]] = []
        self._times: dict[Key, tuple[float, int]] = {}
        self._turn = 0  # keeps keys due at one time in the order they were added, and out of comparisons

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def add(self, time: float, key: Key) -> None:
        """Make the key due at this time, instead of any earlier time given for it."""
        self._turn += 1
        self._times[key] = (time, self._turn)
        heappush(self._heap, (time, self._turn, key))
        self._tidy()

    def discard(self, key: Key) -> None:
        """Call the key off, if it is there."""
        if self._times.pop(key, None) is not None:
            self._tidy()

    def next_time(self) -> float | None:
        """Return the time at which the first key is due."""
        heap = self._heap
        while heap:
            time, turn, key = heap[0]
            if self._times.get(key) == (time, turn):
                return time
            heappop(heap)
        return None

    def pop_due(self, now: float) -> Key | None:
        """Take off and return the first key that is due by now."""
        time = self.next_time()
        if time is None or time > now:
            return None
        key = heappop(self._heap)[2]
        del self._times[key]
        return key

    def items(self) -> Iterator[tuple[Key, float]]:
        """Yield the keys with their times, in the order they were added."""
        return ((key, time) for key, (time, _) in self._times.items())

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._times) + _STALE_MIN:
            self._heap = [(time, turn, key) for key, (time, turn) in self._times.items()]
            heapify(self._heap)


class Leases:
    """Leased messages by the length of their lease.

    Leases of one length run out in the order in which they were given, so a dict for each length keeps them in order
    without a heap: giving and returning a lease is one insertion and one deletion.
    """

    __slots__ = ("_by_timeout", "_soonest", "_tidy_at")

    def __init__(self) -> None:
        self._by_timeout: dict[float, dict[Message, None]] = {}
        self._tidy_at = _STALE_MIN  # so many lengths, before those without leases are looked for
        self._soonest = inf  # no lease runs out before this

    def give(self, message: Message, timeout: float, now: float) -> None:
        """Start the message's lease anew."""
        if message.lease is not None:
            message.lease.pop(message, None)
        lease = self._by_timeout.get(timeout)
        if lease is None:
            self._tidy()
            lease = self._by_timeout[timeout] = {}
        lease[message] = None
        message.lease = lease
        message.timeout = timeout
        message.deadline = deadline = now + timeout
        if deadline < self._soonest:
            self._soonest = deadline

    def next_time(self) -> float | None:
        """Return a time before which no lease runs out."""
        return None if self._soonest == inf else self._soonest

    def expired(self, now: float, limit: int) -> list[Message]:
        """Return up to `limit` messages whose lease has run out, oldest deadline first within a length."""
        if self._soonest > now:
            return []
        found: list[Message] = []
        self._soonest = inf
        for timeout, lease in list(self._by_timeout.items()):
            if not lease:
                del self._by_timeout[timeout]
                continue
            for message in lease:
                if message.deadline > now or len(found) >= limit:
                    self._soonest = min(self._soonest, message.deadline)
                    break
                found.append(message)
        return found

    def _tidy(self) -> None:
        """Forget lengths that no lease has, lest each message with a length of its own leave something behind."""
        if len(self._by_timeout) >= self._tidy_at:
            self._by_timeout = {timeout: lease for timeout, lease in self._by_timeout.items() if lease}
            self._tidy_at = 2 * len(self._by_timeout) + _STALE_MIN
