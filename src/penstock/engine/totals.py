"""Counts of what ever happened at a queue, a topic or a subscriber."""

STAGES = ("published", "assigned", "finished", "retried", "released", "dropped", "dead_lettered")


class Totals:
    """Counts of what ever happened at a cursor, by stage."""

    __slots__ = STAGES

    def __init__(self) -> None:
        self.published = self.assigned = self.finished = self.retried = 0
        self.released = self.dropped = self.dead_lettered = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: getattr(self, name) for name in STAGES}
