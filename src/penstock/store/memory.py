"""A store that keeps nothing: for tests, and for brokers that may forget everything when they stop."""

from collections.abc import Sequence

from penstock.model.records import Record
from penstock.store.port import Recovered, Store


class Memory(Store):
    """Takes every record and keeps none; bodies stay with the engine."""

    recalls = False
    durable = False

    def open(self) -> Recovered:
        """Begin empty."""
        return Recovered(None, 0, iter(()))

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Keep nothing."""

    def sync(self) -> None:
        """Have nothing to wait for."""

    def save(self, position: int, index: bytes) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Have nothing to let go of."""
