"""Room in a queue: how much it may hold, and what gives way when a message comes that is too much."""

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.engine.ready import Entry
from penstock.model.errors import QueueFull
from penstock.model.message import Message
from penstock.model.publication import size_of
from penstock.model.records import Attributes, Record

if TYPE_CHECKING:
    from penstock.engine.queue import Queue

OVERFLOW = "overflow"
_STALE_MIN = 64  # sequences that wait no longer which are not worth a rebuild


class Room:
    """What `max_length`, `max_bytes` and `overflow` come to for one queue."""

    __slots__ = ("_elders", "_queue")

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        #: Heap of the sequences in `returned` and `delayed`, among others that were; made when first asked for.
        self._elders: list[int] | None = None

    def check(self, size: int, replaced: int | None = None) -> None:
        """Raise if a message of this size cannot be taken, whatever the overflow policy does."""
        freed, freed_bytes = 0, 0
        if replaced is not None:
            freed, freed_bytes = 1, size_of(self._waiting_record(replaced))
        if self._overflows(size, 1 - freed, freed_bytes):
            self._check_policy(size, 1)

    def check_load(self, size: int, messages: int, freed: int, freed_bytes: int) -> None:
        """Raise if so many messages cannot be taken once some that are assigned are settled."""
        if self._overflows(size, messages - freed, freed_bytes):
            self._check_policy(size - freed_bytes, messages - freed)

    def check_all(self, bodies: list[bytes], attributes: Attributes) -> None:
        """Raise if not all messages of these bodies and the same attributes can be taken."""
        if self._queue.guarded:
            each = size_of((0, 0, 0.0, 0, 0, 0, attributes, b""))
            self.check_load(sum(map(len, bodies)) + each * len(bodies), len(bodies), 0, 0)

    def make(self, size: int, now: float) -> None:
        """Apply the overflow policy so that a message of this size fits; it was checked that it does."""
        queue = self._queue
        if queue.settings.overflow == "reject":
            return  # dead letters that came in the same transaction may have taken the room
        while self._overflows(size, 1, 0):
            oldest = self.oldest()
            entry = None if oldest is None else queue.take_waiting(oldest)
            if entry is None:
                raise self._full()
            if queue.settings.overflow == "drop-oldest":
                queue.note_drop(entry, now, OVERFLOW, None)
            else:
                queue.give_up(entry, now, OVERFLOW)

    def oldest(self) -> int | None:
        """Return the lowest sequence that waits, visible or not."""
        queue, elders = self._queue, self._elders
        if elders is None:
            elders = self._elders = sorted({*queue.returned, *queue.delayed})
        while elders and elders[0] not in queue.returned and elders[0] not in queue.delayed:
            heappop(elders)
        fresh = queue.ready.oldest_fresh()
        if not elders:
            return fresh
        return elders[0] if fresh is None else min(fresh, elders[0])

    def note(self, sequence: int) -> None:
        """Take note that a message waits in `returned` or `delayed`."""
        elders = self._elders
        if elders is not None:
            heappush(elders, sequence)
            if len(elders) > 2 * (len(self._queue.returned) + len(self._queue.delayed)) + _STALE_MIN:
                self._elders = None

    def clear(self) -> None:
        """Take note that nothing waits."""
        self._elders = None

    def _overflows(self, size: int, messages: int, freed_bytes: int) -> bool:
        queue = self._queue
        settings = queue.settings
        return (settings.max_length is not None and queue.length + messages > settings.max_length) or (
            settings.max_bytes is not None and queue.bytes + size - freed_bytes > settings.max_bytes
        )

    def _check_policy(self, size: int, messages: int) -> None:
        """Raise if the queue rejects what overflows, or would be too full with nothing waiting in it."""
        queue = self._queue
        settings = queue.settings
        if settings.overflow == "reject":
            raise self._full()
        if settings.max_length is not None and len(queue.assigned) + messages > settings.max_length:
            raise self._full()
        if settings.max_bytes is not None and not self._fits_without_oldest(size, settings.max_bytes):
            assigned = sum([size_of(message.record) for message in queue.assigned.values()])
            if assigned + size > settings.max_bytes:
                raise self._full()

    def _fits_without_oldest(self, size: int, bytes_max: int) -> bool:
        """Tell whether it is enough that one message gives way, as it mostly is: then the assigned need not be counted."""
        oldest = self.oldest()
        if oldest is None:
            return False
        return self._queue.bytes + size - size_of(self._waiting_record(oldest)) <= bytes_max

    def _waiting_record(self, sequence: int) -> Record:
        queue = self._queue
        entry: Entry | None = queue.returned.get(sequence) or queue.delayed.get(sequence) or queue.ready.find(sequence)
        if entry is None:
            assert queue.agenda.recall is not None  # noqa: S101  # only with it are records left in the store
            return queue.agenda.recall([sequence])[0]
        return entry.record if isinstance(entry, Message) else entry

    def _full(self) -> QueueFull:
        queue = self._queue
        settings = queue.settings
        return QueueFull(
            f"{queue} is full with {queue.length} messages of {queue.bytes} bytes "
            f"(max_length {settings.max_length}, max_bytes {settings.max_bytes})",
            key="queue",
            length=queue.length,
            bytes=queue.bytes,
        )
