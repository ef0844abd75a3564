"""What a channel remembers of the dedup ids that it has seen."""

from collections.abc import Iterator


class DedupWindow:
    """Dedup ids with the sequence of the message that came first, and its time; oldest first."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, dedup_id: str, now: float, window: float) -> int | None:
        """Return the sequence of the message that had this id within the window."""
        seen = self._seen.get(dedup_id)
        return seen[0] if seen is not None and seen[1] + window > now else None

    def remember(self, dedup_id: str, sequence: int, now: float, window: float, most: int) -> None:
        """Remember an id, and forget those past the window or over `most`."""
        self._seen.pop(dedup_id, None)
        self._seen[dedup_id] = (sequence, now)
        while len(self._seen) > most:
            del self._seen[next(iter(self._seen))]
        self.forget(now, window, 2)

    def forget(self, now: float, window: float, limit: int) -> int:
        """Forget up to `limit` ids past the window; returns how many."""
        stale: list[str] = []
        for dedup_id, (_, time) in self._seen.items():
            if time + window > now or len(stale) >= limit:
                break
            stale.append(dedup_id)
        for dedup_id in stale:
            del self._seen[dedup_id]
        return len(stale)

    def items(self) -> Iterator[tuple[str, int, float]]:
        """Yield id, sequence and time, oldest first."""
        return ((dedup_id, sequence, time) for dedup_id, (sequence, time) in self._seen.items())
