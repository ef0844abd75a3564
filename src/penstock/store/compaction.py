"""Giving space back: which runs of a log are packed together, and what of them is live; stores say how it is done."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.store.batches import Columns
from penstock.store.live import LiveSet
from penstock.store.runs import RECORD_BYTES, Run

#: Packed runs up to this size are always merged: at 64 KiB, the rounding up to blocks is lost in the rest.
SMALL_BYTES = 64 << 10
#: Header, footer and rounding to a block: what a packed run of the journal takes besides its messages.
FIXED_BYTES = 4096
#: A run is measured again when this share of its live messages has gone.
MEASURE_AGAIN = 0.1


class Piece(NamedTuple):
    """A run, as the planning sees it."""

    size: int
    live_bytes: int
    compacted: bool
    shrinks: bool  # whether packing it would leave anything out

    def wasteful(self) -> bool:
        """Whether less than half of it is live."""
        return self.shrinks and self.size > 2 * self.live_bytes and not self.is_minimal()

    def is_minimal(self) -> bool:
        """Whether it is as small as a packed run gets."""
        return self.compacted and self.size <= self.live_bytes + FIXED_BYTES // 4


def plan(pieces: list[Piece], bytes_max: int) -> list[tuple[int, int]]:
    """Return which neighbours (from, to) are to be packed into one run each, oldest first.

    Each wasteful run is packed. A small packed one joins its neighbours; a larger one only when they bring at least
    half of its size, so that each message is written again a few times in all, and not at each collection.
    """
    found: list[tuple[int, int]] = []
    end = len(pieces)
    begin = end
    live_bytes = 0

    def flush() -> None:
        group = pieces[begin:end]
        if len(group) > 1 or any(piece.wasteful() for piece in group):
            found.append((begin, end))

    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        joins = piece.wasteful() or (piece.compacted and piece.size <= max(SMALL_BYTES, 2 * live_bytes))
        if not joins or live_bytes + piece.live_bytes > bytes_max:
            flush()
            begin = end = index + 1
            live_bytes = 0
        if joins:
            begin = index
            live_bytes += piece.live_bytes
        else:
            begin = end = index
    flush()
    return found[::-1]


Kept = TypeVar("Kept", bound=Run)


class Compaction(ABC, Generic[Kept]):
    """One collection: `run` it once. The lock guards runs and live messages."""

    def __init__(self, lock: threading.Lock, live: LiveSet) -> None:
        self._guard = lock
        self._live = live
        #: Bytes given back.
        self.freed = 0

    @abstractmethod
    def size(self, run: Kept) -> int:
        """Return the bytes that a run takes."""

    @abstractmethod
    def is_compacted(self, run: Kept) -> bool:
        """Whether it holds nothing but what was live once."""

    @abstractmethod
    def columns(self, run: Kept) -> Iterator[Columns]:
        """Read the batches of a run."""

    @abstractmethod
    def remove(self, run: Kept) -> None:
        """Let go of the first run, of which nothing is live."""

    @abstractmethod
    def pack(self, runs: list[Kept]) -> None:
        """Replace these by one with the live messages alone; it stands for the history of all of them."""

    @abstractmethod
    def missing(self, run: Kept, count: int) -> Exception:
        """Return the error that so many messages are needed and not in the run."""

    def run(self, runs: list[Kept], bytes_max: int) -> None:
        """Free what can be freed among these, oldest first; packed ones are no larger than that."""
        with self._guard:
            self._live.prune()
            counts = self._live.counts([(run.base, run.last) for run in runs])
        while runs and not counts[0]:
            self.remove(runs.pop(0))
            del counts[0]
        pieces = [self._piece(run, count) for run, count in zip(runs, counts, strict=True)]
        for begin, end in plan(pieces, bytes_max):
            self.pack(runs[begin:end])

    def live_in(self, run: Kept) -> Iterator[tuple[Columns, list[int]]]:
        """Yield the batches of a run that hold live messages, and where these stand in them."""
        kept = 0
        for columns in self.columns(run):
            live = self._places(columns.positions())
            kept += len(live)
            if live:
                yield columns, live
        with self._guard:
            live_count = self._live.counts([(run.base, run.last)])[0]
        if live_count > kept:  # Others can only have gone meanwhile.
            raise self.missing(run, live_count - kept)

    def _piece(self, run: Kept, live: int) -> Piece:
        compacted = self.is_compacted(run)
        live_bytes = run.published_bytes if live == run.published else self._live_bytes(run, live)
        return Piece(self.size(run), live_bytes, compacted, shrinks=not compacted or live < run.records)

    def _live_bytes(self, run: Kept, live: int) -> int:
        """Return how many bytes the live messages take; counted anew only when many have gone since the last time."""
        before = run.measured_live
        if not live or (before >= 0 and before - live < before * MEASURE_AGAIN):
            return run.measured * live // before if live else 0
        total = 0
        for columns, places in self.live_in(run):
            sizes = columns.sizes()
            total += sum(sizes[place] for place in places) + RECORD_BYTES * len(places)
        run.measured, run.measured_live = total, live
        return total

    def _places(self, positions: Sequence[int]) -> list[int]:
        with self._guard:
            live = self._live.between(positions[0], positions[-1])
        if isinstance(positions, range):
            return [sequence - positions.start for sequence in live]
        places = {position: place for place, position in enumerate(positions)}
        return [places[sequence] for sequence in live if sequence in places]
