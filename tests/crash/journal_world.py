"""A world for the journal: work that is drawn from a seed, what was promised meanwhile, and what must be true after a crash."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from penstock.model.errors import PenstockError
from penstock.model.records import Kind, Record
from penstock.store.journal import Journal
from penstock.store.journal.filesystem import FileSystem
from tests.crash.simulated_disk import SimulatedDisk

SEGMENT_BYTES = 16 * 1024
DIRECTORY = "data"


@cache
def record_at(position: int) -> Record:
    """Return the record of a position: always the same, so that whoever finds it knows whether it is right."""
    choice = random.Random(position)
    if position % 3 != 1:
        kind = Kind.ASSIGN if position % 3 == 2 else Kind.FINISH
        return (int(kind), 5, 1000.0 + position, position - position % 3, 9, 1, None, b"")
    attributes = {1: {"name": f"value {position}"}, 2: "key"} if position % 5 == 0 else None
    body = choice.randbytes(choice.choice((0, 20, 100, 300)))
    return (int(Kind.PUBLISH), 5, 1000.0 + position, position, 7, 4, attributes, body)


def index_at(position: int) -> bytes:
    """Return the index of a position."""
    return b"state as of %d " % position * 10


def new_journal(disk: FileSystem, *, salvage: bool = False, salt: int = 1) -> Journal:
    """Return a journal on a disk that makes its calls in the same order each time."""
    salts = random.Random(salt)
    return Journal(
        DIRECTORY,
        segment_bytes=SEGMENT_BYTES,
        file_system=disk,
        background=False,
        salvage=salvage,
        salts=lambda: salts.getrandbits(64),
    )


@dataclass
class Promises:
    """What was asked for and what was promised, each with the number of calls that the disk had seen by then."""

    #: Last position of each batch, in order, and the sequences that it made gone.
    batches: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    synced: list[tuple[int, int]] = field(default_factory=list)
    saved: list[tuple[int, int]] = field(default_factory=list)
    refused: int = 0

    def synced_by(self, calls: int) -> int:
        """Return the last position that was promised to be durable when the disk had seen so many calls."""
        return max((position for at, position in self.synced if at <= calls), default=0)

    def saved_by(self, calls: int) -> int:
        """Return the position of the last index that was promised by then."""
        return max((position for at, position in self.saved if at <= calls), default=0)


class World:
    """Does work on a journal and notes the promises."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.choice = random.Random(seed)
        self.promises = Promises()
        self.next = 1
        self.written: list[int] = []  # published and not gone
        self.journal = new_journal(disk, salt=seed)

    def open(self) -> None:
        """Open the journal of a new directory."""
        list(self.journal.open().batches)
        self.journal.adopt([])

    def run(self, operations: int) -> None:
        """Do so many operations, most of them writes and syncs."""
        for _ in range(operations):
            self.step()

    def step(self) -> None:
        """Do one operation."""
        draw = self.choice.random()
        if draw < 0.55:
            self.write(self.choice.choice((1, 1, 2, 5, 12)))
        elif draw < 0.90:
            self.sync()
        elif draw < 0.93:
            self.journal.seal()
        elif draw < 0.96:
            self.journal.save(self.next, index_at(self.next))
            self.promises.saved.append((len(self.disk.calls), self.next))
        elif draw < 0.99:
            self.collect()
        else:
            self.next += self.choice.choice((1, 7, 5000))  # as after an unclean stop

    def collect(self) -> None:
        """Collect; half of the times right after messages went whose end was not synced yet."""
        if self.choice.random() < 0.5:
            self.write(1, 0.9)
        self.journal.collect(self.next)

    def write(self, count: int, share: float | None = None) -> None:
        """Write a batch; now and then most of the messages go, so that there is something to collect."""
        first, self.next = self.next, self.next + count
        records = [record_at(position) for position in range(first, self.next)]
        if share is None:
            share = self.choice.choice((0.0, 0.0, 0.1, 0.9))
        # One in 16 is a straggler.
        gone = tuple(one for one in self.written if self.choice.random() < share / (20 if one % 16 == 0 else 1))
        self.written = [sequence for sequence in self.written if sequence not in set(gone)]
        self.written += [position for position in range(first, self.next) if position % 3 == 1]
        self.promises.batches.append((first, self.next - 1, gone))
        self.journal.write(first, records, gone)

    def sync(self) -> None:
        """Sync, and note what that promised."""
        self.journal.sync()
        if self.promises.batches:
            self.promises.synced.append((len(self.disk.calls), self.promises.batches[-1][1]))


class Broken(AssertionError):
    """A promise was broken."""


def check(files: dict[str, bytes], promises: Promises, calls: int, *, again: bool = True) -> SimulatedDisk:
    """Recover from these files and check every promise that was given within so many calls; return the disk."""
    disk = SimulatedDisk(files)
    journal = new_journal(disk, salt=calls + 1)
    end = check_recovered(journal, promises, promises.synced_by(calls), promises.saved_by(calls))
    if again:
        go_on(disk, journal, end)
    else:
        journal.close()
    return disk


def check_recovered(journal: Journal, promises: Promises, synced: int, saved: int) -> int:
    """Open the journal and check that it holds all that was promised; return the last position."""
    recovered = journal.open()
    if recovered.index_position < saved:
        raise Broken(f"the index of {saved} was saved, but that of {recovered.index_position} was found")
    if recovered.index is not None and recovered.index != index_at(recovered.index_position):
        raise Broken("the index is not what was saved")
    batches = [(list(batch.positions), batch.records) for batch in recovered.batches]
    found = [position for positions, _ in batches for position in positions]
    for positions, records in batches:
        if records != [record_at(position) for position in positions]:
            raise Broken(f"the records from {positions[0]} on are not what was written")
    end = max([0, recovered.index_position - 1, *found])
    if end < synced:
        raise Broken(f"{synced} was synced, but the log ends at {end}")
    survived = [batch for batch in promises.batches if batch[0] <= end]
    begin = recovered.index_position
    expected = [position for first, last, _ in survived for position in range(max(first, begin), last + 1)]
    if found != expected:
        raise Broken(f"the log from {begin} on is not the batches that were written: {found[:5]}… {found[-5:]}")
    # What the index names may be asked for before the engine has replayed that it went.
    check_live(journal, live_after([batch for batch in survived if batch[1] < begin]))
    check_live(journal, live_after(survived))
    return end


def live_after(batches: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[int]:
    """Return the messages that are needed after these batches."""
    gone = {sequence for _, _, sequences in batches for sequence in sequences}
    return [
        position
        for first, last, _ in batches
        for position in range(first, last + 1)
        if position % 3 == 1 and position not in gone
    ]


def check_live(journal: Journal, live: Sequence[int]) -> None:
    """Check that every message that is needed can be recalled."""
    journal.adopt([live])
    if journal.recall(live) != [record_at(sequence) for sequence in live]:
        raise Broken("a message that was recalled is not what was written")


def go_on(disk: SimulatedDisk, journal: Journal, end: int) -> None:
    """Write more, and check that a second recovery finds that too: what was cut has really gone."""
    first = end + 1
    journal.write(first, [record_at(first)], [])
    journal.sync()
    after = new_journal(SimulatedDisk(disk.contents()), salt=end)
    found = [position for batch in after.open().batches for position in batch.positions]
    if not found or found[-1] != first:
        raise Broken(f"what was written after recovery at {first} was not found again")
    after.close()
    journal.close()


def outcome(files: dict[str, bytes], promises: Promises, synced: int, saved: int) -> str:
    """Tell what becomes of damaged files: `identical`, `dropped` (unconfirmed records of the tail) or `refused`."""
    journal = new_journal(SimulatedDisk(files))
    written = promises.batches[-1][1]
    try:
        end = check_recovered(journal, promises, synced, saved)
    except Broken:
        raise
    except PenstockError:
        return "refused"
    finally:
        journal.close()
    return "identical" if end == written else "dropped"
