"""Counts of what ever happened at a queue, a topic or a subscriber."""


class Totals:
    """Counts of what ever happened at a cursor, by stage."""

    __slots__ = ("assigned", "dead_lettered", "dropped", "finished", "published", "released", "retried")

    def __init__(self) -> None:
        self.published = self.assigned = self.finished = self.retried = 0
        self.released = self.dropped = self.dead_lettered = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: getattr(self, name) for name in self.__slots__}
