"""What a channel remembers of the dedup ids that it has seen."""

from collections import deque
from collections.abc import Iterator


class DedupWindow:
    """Dedup ids with the sequence of the message that came first, and its time; oldest first."""

    __slots__ = ("_order", "_seen")

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int, float]] = {}
        #: What is in `_seen`, oldest first, among others that were. A dict by itself would pass over all that it has
        #: lost at its front each time that it is asked for its first.
        self._order: deque[tuple[str, int, float]] = deque()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, dedup_id: str, now: float, window: float) -> int | None:
        """Return the sequence of the message that had this id within the window."""
        seen = self._seen.get(dedup_id)
        return seen[1] if seen is not None and seen[2] + window > now else None

    def remember(self, dedup_id: str, sequence: int, now: float, window: float, most: int) -> None:
        """Remember an id, and forget those past the window or over `most`."""
        self._seen[dedup_id] = seen = (dedup_id, sequence, now)
        self._order.append(seen)
        while len(self._seen) > most:
            self._forget_first()
        self.forget(now, window, 2)

    def forget(self, now: float, window: float, limit: int) -> int:
        """Forget up to `limit` ids past the window; returns how many."""
        before = len(self._seen)
        order = self._order
        while order and order[0][2] + window <= now and before - len(self._seen) < limit:
            self._forget_first()
        return before - len(self._seen)

    def items(self) -> Iterator[tuple[str, int, float]]:
        """Yield id, sequence and time, oldest first."""
        return (seen for seen in self._order if self._seen.get(seen[0]) == seen)

    def _forget_first(self) -> None:
        """Forget the oldest, unless its id was seen again since."""
        seen = self._order.popleft()
        if self._seen.get(seen[0]) == seen:
            del self._seen[seen[0]]
