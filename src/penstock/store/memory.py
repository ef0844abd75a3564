"""A store that forgets when the process ends: for tests, and for brokers that may lose everything when they stop."""

from collections.abc import Sequence

from penstock.model.records import Kind, Record
from penstock.store.port import Recovered, Store

_PUBLISH = int(Kind.PUBLISH)


class Memory(Store):
    """Keeps the published records that are still needed, and nothing else."""

    recalls = True
    durable = False

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    def open(self) -> Recovered:
        """Begin empty."""
        return Recovered(None, 0, iter(()))

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Keep what was published, and drop what is gone."""
        kept = self._records
        for position, record in enumerate(records, first):
            if record[0] == _PUBLISH:
                kept[position] = record
        for sequence in gone:
            kept.pop(sequence, None)

    def sync(self) -> None:
        """Have nothing to wait for."""

    def save(self, position: int, index: bytes) -> None:
        """Keep no index: there is nobody to start again from it."""

    def close(self) -> None:
        """Drop everything."""
        self._records.clear()

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Return the published records of these sequences."""
        return [self._records[sequence] for sequence in sequences]
