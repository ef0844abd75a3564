"""The state of a broker as of one moment, as a backup takes it from the store while everything goes on."""

import secrets
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.engine import snapshot
from penstock.model.errors import Unavailable
from penstock.model.records import Record
from penstock.runtime.backup import Head, Recall, Tell, parts_of, tell_nobody
from penstock.runtime.recovery import encoded
from penstock.store.port import Store


class Capture:
    """What was taken on the event loop, and reading it, which is done by one other thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._created = 0.0
        self._state: dict[str, Any] = {}
        #: Held while the store is read: it must not be closed meanwhile.
        self._reading = threading.Lock()
        self._is_over = False

    def take(self, now: float, state: dict[str, Any]) -> None:
        """Take the state of the engine."""
        self._created, self._state = now, state

    @property
    def position(self) -> int:
        """The position before which everything is in the state."""
        position: int = self._state["position"]
        return position

    def parts(self, tell: Tell = tell_nobody) -> Iterator[bytes | bytearray]:
        """Yield the bytes of a backup."""
        live: list[array[int]] = list(snapshot.live(self._state))
        head = Head(secrets.randbits(64), self._created, sum(map(len, live)), self.position)
        recall = self._recall_from_store if self._store.recalls else self._recall_from_state()
        yield from parts_of(head, live, recall, encoded({**self._state, "records": None}), tell)

    def end(self) -> None:
        """Read no more; whoever is in the middle of it is told."""
        with self._reading:
            self._is_over = True

    def _recall_from_store(self, sequences: Sequence[int]) -> list[Record]:
        with self._reading:
            if self._is_over:
                raise Unavailable("the broker stops or nobody waits, so its backup was given up", key="backup")
            return self._store.recall(sequences)

    def _recall_from_state(self) -> Recall:
        """Return what finds the messages of a store that cannot recall them: these are part of the state."""
        records: dict[int, Record] = {record[3]: record for record in self._state["records"]}
        return lambda sequences: [records[sequence] for sequence in sequences]
