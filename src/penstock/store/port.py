"""The storage port: what the broker asks of a store, and what a store promises.

The broker calls `write` and `sync` from one thread of its own, one after the other, and everything else from any thread,
`recall` while a write is under way included. A store knows no rule of queues: it keeps batches of records in order,
gives single records back by position, and keeps the broker's last index, from which the records before it need not be replayed.

What every store promises:

1. After `sync` returns, all that was written before survives a crash of the process and of the machine.
2. A batch is whole or absent after a crash; batches survive in order, without holes.
3. `open` gives back the newest index that was saved, and every record at or after its position.
4. A published record can be recalled until its sequence was named in `gone`, and longer: whoever starts from the newest
   index after a crash can recall what was not gone as of that index, whatever went afterwards.
5. The first write or sync that fails raises `StoreFailed`, and so does every later one: nothing is tried again.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.model.records import Record


@dataclass(slots=True)
class Batch:
    """Records that were written together, each with its position."""

    positions: Sequence[int]
    records: list[Record]


@dataclass(slots=True)
class Recovered:
    """What a store held when it was opened."""

    #: The engine's last saved state, which covers all records before `index_position`; None when there is none.
    index: bytes | None
    index_position: int
    #: The records at and after `index_position`, in order; to be read to the end before the first write.
    batches: Iterator[Batch]
    #: Sentences for the log about what recovery had to do, such as a torn tail that was cut.
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Stretch:
    """A run of the change log that the store deletes or compacts as one."""

    first: int  # position of its first record
    last: int  # position of its last record
    bytes: int  # bytes that it takes
    live_messages: int  # published messages in it that some cursor still needs
    oldest: float  # time of its first record
    newest: float  # time of its last record


@dataclass(slots=True, frozen=True)
class LogStretch:
    """A run of the change log that can be read as bytes of a file: whole batches of the journal's format."""

    file: int  # names the file
    salt: int  # of the file, which the sums of its batches begin with
    start: int  # offset of the first batch
    end: int  # offset after the last batch
    first: int  # position of the first record that is meant
    last: int  # position of the last record that is meant
    oldest: float  # time of the first record of the file
    newest: float  # time of the last one


class Log(ABC):
    """The change log as bytes, for those who read all of it. Safe for any thread; nothing that may be missing is told.

    Positions before `end` are on disk: whoever asks knows that.
    """

    @abstractmethod
    def start(self, end: int) -> int:
        """Return the first position from which on nothing is missing; `end` when nothing is kept."""

    @abstractmethod
    def stretches(self, first: int, end: int) -> list[LogStretch]:
        """Return what holds the records from `first` up to `end`, exclusive, as far as it is kept."""

    @abstractmethod
    def advance(self, first: int, end: int, records: int, size: int) -> int:
        """Return the position up to which somebody at `first` comes with so many records, and about so many bytes.

        It is after at least one record if there is one before `end`.
        """

    @abstractmethod
    def at(self, time: float, end: int) -> int:
        """Return the position of the first record of that time or later; `end` when there is none."""

    @abstractmethod
    def read(self, file: int, start: int, end: int) -> bytes:
        """Return the bytes of a stretch, or of a part of one; `NoObject` when the file has gone."""


@dataclass(slots=True, frozen=True)
class StageKept:
    """What is known of a stage."""

    name: str
    bytes: int
    changed_at: float  # seconds since the epoch


class Stages(ABC):
    """Bytes that queries of Spark have written and not published yet, by names. For any thread; each call may be slow."""

    @abstractmethod
    def kept(self) -> list[StageKept]:
        """Return what is there."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is a stage of this name."""

    @abstractmethod
    def append(self, name: str, data: bytes) -> None:
        """Add bytes to a stage, which is made if need be."""

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Make durable what was added to these stages."""

    @abstractmethod
    def parts(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a stage, in order and in parts of any size."""

    @abstractmethod
    def drop(self, name: str) -> int:
        """Throw a stage away; returns how many bytes it had, which is 0 if it is not there."""

    def close(self) -> None:
        """Let go of what was to live no longer than the broker."""


class Store(ABC):
    """Makes records durable; see the promises above. Methods with a body are optional. docs/storage.md has an example."""

    #: Whether `recall` works, so that the engine may let bodies leave memory.
    recalls: bool = False
    #: Whether what was synced survives the process; False for a store in memory.
    durable: bool = True
    #: Whether what `write` has returned for survives the end of the process; else nobody is told of it before `sync`.
    keeps_written: bool = False
    #: The change log as bytes; None for a store that keeps no history.
    log: "Log | None" = None
    #: Where the broker may keep files beside the store's own; None where there is no such place.
    directory: str | None = None
    #: Where the broker keeps what is staged; None for files, in `directory` if there is one.
    stages: "Stages | None" = None
    #: Whether several brokers may point at this store: one writes, and the others wait until it is their turn.
    is_shared: bool = False

    @property
    def holder(self) -> str | None:
        """Who writes to a store that is shared, for people; None when nobody does or nobody knows."""
        return None

    def contend(self) -> bool:
        """Try to become the one who writes, before `open`; returns whether it succeeded.

        Whoever stands by asks again and again, from a thread, also after `StoreAway`. `open` without it tries once.
        """
        return True

    def check(self) -> None:
        """Raise `StoreFailed` if somebody else may be writing to a store that is shared.

        Cheap: asked whenever the broker looks at its clock, which it does before it does anything else. A process that
        was stopped and goes on sees the clock jump, and must not hand out what another has handed out meanwhile.
        """

    @abstractmethod
    def open(self) -> Recovered:
        """Take the store for this process and recover it; raises a `StoreError` when that cannot be."""

    @abstractmethod
    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Hand one batch, whose first record is at position `first`, to the operating system.

        `gone` are sequences of messages that no cursor needs any longer once this batch is durable.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make all that was written durable."""

    def seal(self) -> None:
        """Leave evidence that all that was synced was synced.

        Called by the thread that commits after a `sync` with nothing following for now. Without it a store cannot tell
        damage of the last batch that was confirmed from a batch that was torn before it was.
        """

    @abstractmethod
    def save(self, position: int, index: bytes) -> None:
        """Durably keep the engine's state as of `position` (all records before it); older ones may go."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store; what was not synced may be lost."""

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Return the published records of these sequences, in their order; they were written and are not gone."""
        raise NotImplementedError

    def expect(self, sequences: Sequence[int]) -> None:
        """Take the hint that these will be recalled soon."""

    def adopt(self, live: Iterable[Sequence[int]]) -> None:
        """Learn, after `open` and before the first write, the ascending sequences of the messages still needed."""

    def has_room(self) -> bool:
        """Whether new messages can be taken; settlements always fit. Cheap: asked at each wake-up."""
        return True

    def make_room(self) -> bool:
        """Try to get room after `has_room` said no; asked a few times a second from a thread."""
        return True

    def stretches(self) -> list[Stretch]:
        """Return the runs of the log that are kept, oldest first."""
        return []

    def collect(self, floor: int) -> int:
        """Free what is not needed among records before `floor` and before the saved index; return the bytes freed."""
        return 0

    def read(self, first: int, last: int) -> Iterator[Batch]:
        """Read the log from `first` to `last`, both included, as far as it is kept."""
        raise NotImplementedError
