"""What calls of the engine leave behind for the broker: records to store, notices to send, work to hand out."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.departed import Departed
from penstock.model.records import Attributes, Kind, Record
from penstock.model.stages import Stage

if TYPE_CHECKING:
    from penstock.engine.consumers import Consumer
    from penstock.engine.cursor import Cursor

#: Positions reserved at a time. One flush of the broker makes far fewer records than half of it, so the
#: reservation is always on disk before a position beyond the last one is used.
POSITION_BLOCK = 2**20


class Notice(NamedTuple):
    """A stage that a message of a publisher has reached."""

    client: int
    label: int
    stage: Stage
    sequence: int


class Effects:
    """Filled by the engine's calls, emptied by the broker once a wake-up."""

    __slots__ = (
        "departed",
        "dirty",
        "early",
        "first",
        "gone",
        "hungry",
        "notices",
        "records",
        "reserved",
        "to_persist",
        "touched",
    )

    def __init__(self) -> None:
        #: Position of the first of `records`.
        self.first = 1
        self.records: list[Record] = []
        #: Sequences of messages that no cursor needs any more.
        self.gone: list[int] = []
        self.notices: list[Notice] = []
        #: Notices that wait for nothing: a message is in memory.
        self.early: list[Notice] = []
        #: Who wants to know that a message was written or synced.
        self.to_persist: list[Notice] = []
        #: Cursors that have something to hand out, and consumers that have room again.
        self.dirty: dict[Cursor, None] = {}
        self.hungry: dict[Consumer, None] = {}
        #: Consumers with messages in their inbox.
        self.touched: dict[Consumer, None] = {}
        #: Positions below this are reserved on disk, or will be with the next batch.
        self.reserved = 0
        #: Names that records may still ask for.
        self.departed = Departed()

    @property
    def position(self) -> int:
        """The position of the next record."""
        return self.first + len(self.records)

    def note(
        self,
        kind: Kind,
        now: float,
        *,
        cursor: int = 0,
        subject: int = 0,
        client: int = 0,
        number: int = 0,
        attributes: Attributes = None,
    ) -> None:
        """Add a record; the hot paths append theirs themselves."""
        self.records.append((kind, cursor, now, subject, client, number, attributes, b""))

    def take(self, now: float) -> tuple[int, list[Record], list[int], list[Notice], list[Notice]]:
        """Hand over the position of the first record, the records, what is gone, the notices, and those to persist."""
        # Nothing is reserved beyond the next position when a broker has stopped in good order.
        if self.position != self.reserved < self.position + POSITION_BLOCK // 2:
            self.reserve(now)
        taken = (self.first, self.records, self.gone, self.notices, self.to_persist)
        self.first += len(self.records)
        self.records, self.gone, self.notices, self.to_persist = [], [], [], []
        return taken

    def reserve(self, now: float) -> None:
        """Reserve another block of positions."""
        self.reserved = self.position + POSITION_BLOCK
        self.note(Kind.RESERVE, now, subject=self.reserved)
