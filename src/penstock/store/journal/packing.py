"""Writing a closed segment in one go, tightly packed: for compaction and for salvage."""

from penstock.model.records import Record
from penstock.store.batches import FOOTER, empty, encode, finish
from penstock.store.journal.filesystem import FileSystem, write_all
from penstock.store.journal.format import SEGMENT_HEADER_BYTES, SegmentHeader, pack_footer, pack_segment_header
from penstock.store.journal.segments import Segment
from penstock.store.runs import CHUNK_BYTES

#: A batch of a packed segment is written at so many bytes of content, or so many records: what is read for one recall.
BATCH_RECORDS = 512


class PackedSegment:
    """A segment that is being packed under a temporary name, and gets its own by a rename when it is whole and on disk."""

    def __init__(self, file_system: FileSystem, directory: str, temporary: str, header: SegmentHeader) -> None:
        self._header = header
        self._file = file_system.open(temporary, create=True)
        self._positions: list[int] = []
        self._records: list[Record] = []
        self._bytes = 0
        self.segment = Segment(directory, header, 0)
        write_all(self._file, pack_segment_header(header), 0)

    def add(self, position: int, record: Record) -> None:
        """Append a record that has this position."""
        self._positions.append(position)
        self._records.append(record)
        self._bytes += len(record[7])
        if self._bytes >= CHUNK_BYTES or len(self._records) >= BATCH_RECORDS:
            self._flush()

    def _flush(self) -> None:
        if self._records:
            encoded = encode(self._positions[0], self._records, self._positions)
            self._write(encoded.batch)
            times = self._records[0][2], self._records[-1][2]
            self.segment.add(self.segment.end, self._positions[0], self._positions[-1], len(encoded.batch))
            self.segment.count(encoded.kinds, encoded.content_bytes, *times)
        self._positions, self._records, self._bytes = [], [], 0

    def _write(self, batch: bytearray) -> None:
        finish(batch, self._header.salt, self.segment.end, SEGMENT_HEADER_BYTES)
        write_all(self._file, batch, self.segment.end)

    def finish(self) -> Segment:
        """Write the footer and sync; the file may be renamed now."""
        self._flush()
        segment = self.segment
        segment.last = self._header.last
        footer = empty(FOOTER, segment.last + 1, pack_footer(segment.footer(), segment.end))
        self._write(footer)
        self._file.sync()
        segment.size = segment.end + len(footer)
        segment.closed = True
        return segment

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
