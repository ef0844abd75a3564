"""A broker without threads and event loop: an engine on a journal on a simulated disk, moved by single calls.

What `penstock.runtime` does by itself, such as commits, indexes and collecting, is done here in steps, so that a crash can
come between any two of them, or within one.
"""

import random
from collections.abc import Sequence
from typing import Any

from penstock.engine import snapshot
from penstock.engine.engine import Engine
from penstock.engine.replay import Replay
from penstock.model.records import Record
from penstock.runtime import recovery
from penstock.runtime.clock import Clock
from penstock.runtime.commits import Commit
from penstock.store.journal import Journal
from tests.crash.simulated_disk import Crashes, SimulatedDisk
from tests.simulation.summary import Summary, summary_of

SEGMENT_BYTES = 8 * 1024
SWEEP = 500


class ManualTime:
    """Two clocks that are set by hand: one that runs steadily, and one on the wall."""

    def __init__(self) -> None:
        self.monotonic = 1000.0
        self.wall = 1_700_000_000.0

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.monotonic += seconds
        self.wall += seconds

    def new_clock(self) -> Clock:
        """Return the clock of a process that starts now."""
        return Clock(lambda: self.wall, lambda: self.monotonic)


class Driver:
    """One life of a broker, from a start to a stop or a crash."""

    def __init__(self, disk: SimulatedDisk, time: ManualTime, seed: int, first: int = 1) -> None:
        salts = random.Random(seed)
        self.disk = disk
        self.clock = time.new_clock()
        self.now = self.clock.now
        self.store = Journal(
            "data",
            segment_bytes=SEGMENT_BYTES,
            file_system=disk,
            background=False,
            salts=lambda: salts.getrandbits(64),
        )
        self.engine = Engine(recall=self._recall)
        self.effects = self.engine.effects
        self.in_flight: Commit | None = None
        #: What was begun to be saved as an index: position and state.
        self.dumped: tuple[int, bytes] | None = None
        #: Numbers of commits: of the next, of the last that was handed to the disk, of the last that is durable.
        self.next = first
        self.written = self.synced = first - 1
        #: What the engine must look like when it comes back from each commit that is not durable yet, or is the last that is.
        self.summaries: dict[int, Summary] = {}
        self.keeps_all = False
        #: Calls that the disk had seen when a commit became durable.
        self.promises: list[tuple[int, int]] = []
        self.restored = recovery.restore(self.store, self.engine, self.now())
        self.commit()

    # Commits, in steps.

    def take(self) -> None:
        """Take what was recorded, to be written as one batch."""
        if self.in_flight is None and self.effects.records:
            self.summaries[self.next] = summary_of(self.engine, self.now())
            self.in_flight = Commit(*self.effects.take(self.now()))
            self.next += 1

    def write(self) -> None:
        """Hand the batch that was taken to the disk."""
        if self.in_flight is not None and self.written < self.next - 1:
            commit = self.in_flight
            self.store.write(commit.first, commit.records, commit.gone)
            self.written = self.next - 1

    def sync(self) -> None:
        """Make the batch that was written durable; from now on all in it is promised."""
        if self.in_flight is not None and self.written == self.next - 1:
            self.store.sync()
            self.in_flight = None
            self.synced = self.written
            self.promises.append((len(self.disk.calls), self.synced))
            if not self.keeps_all:
                for number in [number for number in self.summaries if number < self.synced]:
                    del self.summaries[number]

    def commit(self) -> None:
        """Write and sync all that was recorded."""
        while self.in_flight is not None or self.effects.records:
            self.take()
            self.write()
            self.sync()

    # Upkeep, in steps.

    def dump(self) -> None:
        """Begin an index of the present state."""
        if self.dumped is None:
            self.dumped = self.effects.position, recovery.encoded(snapshot.dump(self.engine))

    def save(self) -> None:
        """Save the index that was begun, after what it covers has become durable."""
        if self.dumped is not None:
            position, index = self.dumped
            self.dumped = None
            if position > (self.in_flight.first if self.in_flight is not None else self.effects.first):
                self.commit()
            self.store.save(position, index)

    def collect(self) -> None:
        """Free what nobody needs."""
        self.store.collect(self.effects.position)

    def sweep(self) -> None:
        """Let everything happen that is due."""
        while self.engine.sweep(self.now(), SWEEP):
            pass

    # Ends.

    def kill(self) -> dict[str, bytes]:
        """End the process; return what is on the disk: all that was written."""
        return self.disk.contents()

    def lose_power(self, choice: random.Random, after: int) -> dict[str, bytes]:
        """End the machine when it has done `after` calls of the disk; return what one of many outcomes leaves."""
        crashes = Crashes(self.disk)
        while crashes.at < after:
            crashes.step()
        kind = choice.randrange(4)
        if kind == 0:
            return crashes.synced_only()
        if kind == 1:
            return crashes.names_lost()
        return crashes.torn(choice.getrandbits(32))

    def stop(self) -> dict[str, bytes]:
        """Stop in good order."""
        self.commit()
        self.dumped = None
        self.dump()
        self.save()
        self.store.seal()
        self.store.close()
        return self.disk.contents()

    def _recall(self, sequences: Sequence[int]) -> list[Record]:
        """Give records back, from memory if they are not written yet."""
        known: dict[int, Record] = {}
        batches = [(self.effects.first, self.effects.records)]
        if self.in_flight is not None:
            batches.append((self.in_flight.first, self.in_flight.records))
        for first, records in batches:
            for sequence in sequences:
                if first <= sequence < first + len(records):
                    known[sequence] = records[sequence - first]
        stored = [sequence for sequence in sequences if sequence not in known]
        known.update(zip(stored, self.store.recall(stored) if stored else (), strict=True))
        return [known[sequence] for sequence in sequences]


def found_before_start(files: dict[str, bytes], time: ManualTime, threshold: float) -> Summary:
    """Return what a disk holds, before the broker that starts from it has decided anything."""
    found: list[Summary] = []

    class Looking(Replay):
        """Looks at the engine as the log left it."""

        def finish(self, now: float) -> None:
            self._fill_hollow()
            found.append(summary_of(self._engine, threshold))

    disk = SimulatedDisk(dict(files))
    store = Journal("data", segment_bytes=SEGMENT_BYTES, file_system=disk, background=False)
    engine = Engine(recall=store.recall)
    original: Any = recovery.Replay
    recovery.Replay = Looking  # type: ignore[misc]
    try:
        recovery.restore(store, engine, time.wall)
    finally:
        recovery.Replay = original  # type: ignore[misc]
    return found[0]
