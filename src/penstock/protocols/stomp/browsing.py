"""Browsing: showing a peer what waits in queues, slice by slice, without touching it."""

from collections import deque
from collections.abc import Callable

from penstock.engine.port import Queue, browse, browsed
from penstock.model.message import Message
from penstock.model.records import Record

#: Shown in one turn: reading them back from the store takes a few milliseconds.
SLICE_MESSAGES = 200


class Browser:
    """What of some queues is still to be shown."""

    __slots__ = ("_ends", "_left", "_queues", "_seen", "_selector")

    def __init__(
        self, queues: list[Queue], first: int, selector: Callable[[Record], bool] | None, *, ends: bool
    ) -> None:
        self._selector = selector
        self._ends = ends
        self._queues = queues
        #: Queues with the sequences that are to be shown of each, eight bytes for one, and how many each had published by
        #: then.
        self._left = deque((queue, iter(browse(queue, first))) for queue in queues)
        self._seen = {queue: (queue.totals.published, queue.effects.position) for queue in queues}

    def next_slice(self) -> list[Message]:
        """Return what is to be shown next; nothing when all has been."""
        if not self._left:
            self._look_for_new()
        messages: list[Message] = []
        looked_at = 0
        while self._left and looked_at < SLICE_MESSAGES:
            queue, sequences = self._left[0]
            sequence = next(sequences, None)
            if sequence is None:
                self._left.popleft()
                continue
            looked_at += 1
            message = browsed(queue, sequence)
            if message is not None and (self._selector is None or self._selector(message.record)):
                messages.append(message)
        return messages

    @property
    def has_more(self) -> bool:
        """Whether something is left to be shown now."""
        return bool(self._left)

    @property
    def is_over(self) -> bool:
        """Whether all has been shown, and what comes later is not wanted."""
        return self._ends and not self._left

    def _look_for_new(self) -> None:
        for queue in self._queues:
            published, position = self._seen[queue]
            if queue.totals.published != published:
                self._seen[queue] = (queue.totals.published, queue.effects.position)
                self._left.append((queue, iter(browse(queue, position))))
