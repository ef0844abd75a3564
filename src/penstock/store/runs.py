"""What a store knows of one run of its log: batches that stand end to end in one file, or in rows that stand for one."""

from array import array
from bisect import bisect_right

from penstock.model.records import Kind
from penstock.store.batches import Columns

#: The table in memory has one entry for at least so many bytes: 16 KiB of table for 16 MiB of one-record batches.
CHUNK_BYTES = 16 * 1024
#: What a record takes besides attributes and body, when no column is constant.
RECORD_BYTES = 41


class Run:
    """See the module. Numbers that change are guarded by the store's lock."""

    __slots__ = (
        "base", "end", "firsts", "last", "measured", "measured_live", "newest", "offsets", "oldest", "published",
        "published_bytes", "records",
    )  # fmt: skip

    def __init__(self, base: int, last: int, end: int) -> None:
        #: No record here has a lower position.
        self.base = base
        #: Offset where the next batch goes.
        self.end = end
        #: Position of the last record; compacted: of the last one whose history this stands for.
        self.last = last
        self.records = 0
        self.published = 0
        self.published_bytes = 0
        self.oldest = 0.0
        self.newest = 0.0
        #: A sparse table: batches from `offsets[i]` on begin at position `firsts[i]` or later.
        self.firsts: array[int] = array("Q")
        self.offsets: array[int] = array("Q")
        #: Bytes of live messages when their number was `measured_live`; -1 before the first measuring.
        self.measured = 0
        self.measured_live = -1

    def add(self, offset: int, first: int, last: int, length: int) -> None:
        """Note that a batch was written at `offset`."""
        if not self.offsets or offset - self.offsets[-1] >= CHUNK_BYTES:
            self.offsets.append(offset)
            self.firsts.append(first)
        self.end = offset + length
        self.last = last

    def count(self, kinds: bytes, content_bytes: int, oldest: float, newest: float) -> None:
        """Add a batch's records to the summary."""
        if not self.records:
            self.oldest = oldest
        self.newest = newest
        published = kinds.count(Kind.PUBLISH)
        self.records += len(kinds)
        self.published += published
        self.published_bytes += published * RECORD_BYTES + content_bytes

    def count_found(self, columns: Columns, offset: int, length: int) -> None:
        """Take a batch that was found at `offset` into table and summary."""
        positions = columns.positions()
        times = columns.each("times")
        self.add(offset, positions[0], positions[-1], length)
        self.count(bytes(columns.each("kinds")), columns.content_bytes(), times[0], times[-1])

    def chunk(self, position: int) -> tuple[int, int]:
        """Return from which offset to which the batch that holds `position` may stand."""
        entry = bisect_right(self.firsts, position) - 1
        if entry < 0:
            return self.end, self.end
        return self.offsets[entry], self.offsets[entry + 1] if entry + 1 < len(self.offsets) else self.end
