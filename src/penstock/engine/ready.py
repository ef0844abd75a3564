"""The order in which waiting messages go out: by priority, then by place.

A message that was never handed out waits as its publish record, and deep in a queue as nothing but its sequence,
eight bytes in an array; its record is recalled from the store when its turn comes near. A message that has been handed
out before, was delayed, or took another's place waits as a `Message` in a heap beside them.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

from penstock.model.message import Message, State
from penstock.model.records import Record

Entry: TypeAlias = Record | Message
Recall: TypeAlias = Callable[[Sequence[int]], list[Record]]
#: Of each priority, what a consumer with a selector has looked at and does not want: the last sequence among the
#: messages that were never handed out, and the last change of those that were. What it never wants is asked for once.
Passed: TypeAlias = dict[int, tuple[int, int]]

HEAD_RECORDS = 1024  # records in memory per priority of a queue; what comes later waits as a sequence
HEAD_BYTES = 4 * 2**20  # and their bodies' bytes
RECALL_RECORDS = 256  # recalled at a time: one read of the store serves many messages, and memory stays small
FIRST_RECALL_RECORDS = 4  # when nobody knows yet how large they are
SCAN_RECORDS = 1000  # looked at for a selector before others get their turn
PASSED_STALE_MIN = 64  # priorities without messages that are not worth forgetting
TOMBSTONES_MIN = 1024  # entries withdrawn from the middle that are not worth a rebuild
_SEQUENCE = itemgetter(3)
_DRAINED_MIN = 8192  # sequences taken from the front of an array before it is shortened


class Lane:
    """The waiting messages of one priority."""

    __slots__ = ("bytes", "changed", "drained", "head", "priority", "recalls", "returned", "tail")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.head: deque[Record] = deque()
        self.bytes = 0  # of the bodies in head
        #: Sequences behind head; the first `drained` of them have been taken already.
        self.tail: array[int] = array("Q")
        self.drained = 0
        #: How many may be recalled at a time, if those to come are as large as the last.
        self.recalls = FIRST_RECALL_RECORDS
        #: Heap of (place, sequence, id of the object, message); one sequence may stand there again after a stale entry.
        self.returned: list[tuple[int, int, int, Message]] = []
        self.changed = 0  # counts up when something is added to `returned`

    def take_tail(self, count: int) -> "array[int]":
        """Take up to `count` sequences from the front of the tail."""
        end = min(self.drained + count, len(self.tail))
        taken = self.tail[self.drained : end]
        self.drained = end
        if self.drained >= len(self.tail):
            self.tail, self.drained = array("Q"), 0
        elif self.drained >= _DRAINED_MIN and self.drained * 2 > len(self.tail):
            del self.tail[: self.drained]
            self.drained = 0
        return taken

    def note_size(self, records: list[Record]) -> int:
        """Return the bytes of the bodies of recalled records, and recall as many next time as head may have bytes."""
        size = sum([len(record[7]) for record in records])
        if records:
            self.recalls = HEAD_BYTES * len(records) // (size or 1) or 1
        return size

    def fresh_sequences(self) -> "array[int]":
        """Return the sequences of all records, in memory or not, withdrawn ones included."""
        sequences = array("Q", [record[3] for record in self.head])
        sequences.extend(self.tail[self.drained :])
        return sequences


class ReadyOrder:
    """All waiting messages of a cursor, in the order in which they go out."""

    __slots__ = ("_changes", "_lanes", "_priorities", "_recall", "_top", "_withdrawn", "count")

    def __init__(self, recall: Recall | None) -> None:
        self._recall = recall
        self._lanes: dict[int, Lane] = {}
        self._priorities: list[int] = []  # heap of the negated priorities that have a lane
        self._top: Lane | None = None
        self._withdrawn: set[int] = set()  # sequences still in a head or tail that are to be passed over
        self._changes = 0
        self.count = 0

    def push(self, record: Record, priority: int) -> None:
        """Add a new message; its sequence is higher than all before."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._add_lane(priority)
        size = len(record[7])
        if self._recall is not None and (lane.tail or len(lane.head) >= HEAD_RECORDS or lane.bytes + size > HEAD_BYTES):
            lane.tail.append(record[3])
        else:
            lane.head.append(record)
            lane.bytes += size
        self.count += 1

    def push_cold(self, sequences: "array[int]", priority: int) -> None:
        """Add new messages whose records stay in the store."""
        if sequences:
            lane = self._lanes.get(priority) or self._add_lane(priority)
            lane.tail.extend(sequences)
            self.count += len(sequences)

    def put_back(self, message: Message, priority: int) -> None:
        """Add a message at its place."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._add_lane(priority)
        heappush(lane.returned, (message.place, message.record[3], id(message), message))
        self._changes += 1
        lane.changed = self._changes
        self.count += 1

    def pop(self) -> Entry | None:
        """Take the first message."""
        lane = self._top
        while lane is not None:
            head = lane.head
            if not head and lane.tail:
                self._refill(lane)
            if lane.returned:
                place, _, _, message = lane.returned[0]
                if message.state is not State.WAITING:
                    heappop(lane.returned)
                    continue
                if not head or place < head[0][3]:
                    heappop(lane.returned)
                    self.count -= 1
                    return message
            if head:
                record = head.popleft()
                lane.bytes -= len(record[7])
                if self._withdrawn and record[3] in self._withdrawn:
                    self._withdrawn.remove(record[3])
                    continue
                self.count -= 1
                return record
            lane = self._next_lane()
        return None

    def first(self) -> tuple[int, int] | None:
        """Return what to compare queues by: the negated priority and the place of the first message."""
        while self.count:
            lane = self._top
            assert lane is not None  # noqa: S101  # there is a lane where there is a message
            if not lane.head and lane.tail:
                self._refill(lane)
            head = lane.head
            if head and self._withdrawn and head[0][3] in self._withdrawn:
                self._withdrawn.remove(head[0][3])
                lane.bytes -= len(head.popleft()[7])
            elif lane.returned and lane.returned[0][3].state is not State.WAITING:
                heappop(lane.returned)
            elif lane.returned and (not head or lane.returned[0][0] < head[0][3]):
                return (-lane.priority, lane.returned[0][0])
            elif head:
                return (-lane.priority, head[0][3])
            else:
                self._next_lane()
        return None

    def withdraw(self, sequence: int) -> None:
        """Pass over a record that is known to wait here."""
        self._withdrawn.add(sequence)
        self.count -= 1
        if len(self._withdrawn) > max(TOMBSTONES_MIN, self.count):
            self._rebuild()

    def withdraw_message(self, priority: int) -> None:
        """Count off a message that was put back and whose state says that it waits no longer."""
        self.count -= 1
        lane = self._lanes.get(priority)
        if lane is not None and len(lane.returned) > 2 * max(TOMBSTONES_MIN, self.count):
            self._rebuild()

    def pop_wanted(self, wants: Callable[[Record], bool], passed: Passed, limit: int) -> tuple[Entry | None, bool]:
        """Take the first message that is wanted, of those not passed before; says also whether all were looked at.

        About `limit` of those never handed out are looked at.
        """
        if len(passed) > len(self._lanes) + PASSED_STALE_MIN:
            for priority in passed.keys() - self._lanes.keys():
                del passed[priority]
        for priority in sorted(self._lanes, reverse=True):
            lane = self._lanes[priority]
            last, changed = passed.get(priority, (0, -1))
            message = _first_wanted(lane, wants) if lane.changed != changed else None
            if message is None:
                changed = lane.changed
            for record in self._fresh(lane, last + 1):
                if message is not None and message.place < record[3]:
                    break
                if not limit:
                    passed[priority] = (last, changed)
                    return None, False
                limit -= 1
                last = record[3]
                if wants(record):
                    passed[priority] = (last, changed)
                    self.withdraw(last)
                    return record, True
            passed[priority] = (last, changed)
            if message is not None:
                self.withdraw_message(priority)  # once assigned, the order passes over it
                return message, True
        return None, True

    def remove(self, sequence: int) -> Record | None:
        """Take out a record that is known to wait here; quick if it is the first. Returned if it is in memory."""
        lane = self._top
        while lane is not None and not lane.head and not lane.tail and not lane.returned:
            lane = self._next_lane()
        if lane is not None and lane.head and lane.head[0][3] == sequence:
            record = lane.head.popleft()
            lane.bytes -= len(record[7])
            self.count -= 1
            return record
        if lane is not None and not lane.head and lane.tail and lane.tail[lane.drained] == sequence:
            lane.take_tail(1)
            self.count -= 1
            return None
        found = self._in_memory(sequence)
        self.withdraw(sequence)
        return found

    def find(self, sequence: int) -> Record | None:
        """Return the record of this sequence if it waits here and was never handed out."""
        record = self._in_memory(sequence)
        if record is None and self._recall is not None and self._is_cold(sequence):
            return self._recall([sequence])[0]
        return record

    def __contains__(self, sequence: int) -> bool:
        return self._in_memory(sequence) is not None or self._is_cold(sequence)

    def entries(self) -> Iterator[Entry]:
        """Yield all in order; what changes meanwhile may or may not be seen."""
        for priority in sorted(self._lanes, reverse=True):
            lane = self._lanes[priority]
            returned = [entry for entry in sorted(lane.returned) if entry[3].state is State.WAITING]
            returned.reverse()
            for record in self._fresh(lane):
                while returned and returned[-1][0] < record[3]:
                    yield returned.pop()[3]
                yield record
            while returned:
                yield returned.pop()[3]

    def sequences(self, first: int = 0) -> Iterator[int]:
        """Yield the sequences of all from `first` on, in order; what changes meanwhile may or may not be seen."""
        for priority in sorted(self._lanes, reverse=True):
            lane = self._lanes[priority]
            fresh = lane.fresh_sequences()
            returned = [
                (place, sequence) for place, sequence, _, message in lane.returned if message.state is State.WAITING
            ]
            ordered = (
                merge(zip(fresh, fresh, strict=True), sorted(returned)) if returned else zip(fresh, fresh, strict=True)
            )
            for _, sequence in ordered:
                if sequence >= first and sequence not in self._withdrawn:
                    yield sequence

    def clear(self) -> None:
        """Drop all."""
        self._lanes.clear()
        self._priorities.clear()
        self._withdrawn.clear()
        self._top = None
        self.count = 0

    def fresh(self) -> Iterator[tuple[int, "array[int]"]]:
        """Yield each priority with the ascending sequences of its messages that were never handed out."""
        for priority, lane in self._lanes.items():
            sequences = lane.fresh_sequences()
            if self._withdrawn:
                sequences = array("Q", [number for number in sequences if number not in self._withdrawn])
            if sequences:
                yield priority, sequences

    def oldest_fresh(self) -> int | None:
        """Return the lowest sequence that was never handed out."""
        oldest: int | None = None
        for lane in self._lanes.values():
            first = self._first_fresh(lane)
            if first is not None and (oldest is None or first < oldest):
                oldest = first
        return oldest

    def _first_fresh(self, lane: Lane) -> int | None:
        """Return the first sequence of a lane, once what was withdrawn before it is dropped."""
        head, withdrawn = lane.head, self._withdrawn
        while head and head[0][3] in withdrawn:
            withdrawn.remove(head[0][3])
            lane.bytes -= len(head.popleft()[7])
        if head:
            return head[0][3]
        while lane.tail and lane.tail[lane.drained] in withdrawn:
            withdrawn.remove(lane.take_tail(1)[0])
        return lane.tail[lane.drained] if lane.tail else None

    def _in_memory(self, sequence: int) -> Record | None:
        if sequence not in self._withdrawn:
            for lane in self._lanes.values():
                head = lane.head
                if head and head[0][3] <= sequence <= head[-1][3]:
                    record = head[bisect_left(head, sequence, key=_SEQUENCE)]
                    if record[3] == sequence:
                        return record
        return None

    def _is_cold(self, sequence: int) -> bool:
        return sequence not in self._withdrawn and any(
            _holds(lane.tail, sequence, lane.drained) for lane in self._lanes.values()
        )

    def _fresh(self, lane: Lane, first: int = 0) -> Iterator[Record]:
        """Yield the records that were never handed out, from the sequence `first` on."""
        head = lane.head
        for record in list(islice(head, bisect_left(head, first, key=_SEQUENCE), None)):
            if record[3] not in self._withdrawn:
                yield record
        tail = lane.tail
        start = bisect_left(tail, first, lane.drained)
        while start < len(tail):
            end = start + min(lane.recalls, RECALL_RECORDS)
            records = self._recalled(tail[start:end])
            lane.note_size(records)
            yield from records
            start = end

    def _recalled(self, sequences: "array[int]") -> list[Record]:
        assert self._recall is not None  # noqa: S101  # only with it is anything put into a tail
        if self._withdrawn:
            sequences = array("Q", [number for number in sequences if number not in self._withdrawn])
        return self._recall(sequences) if sequences else []

    def _refill(self, lane: Lane) -> None:
        while lane.tail and not lane.head:
            taken = lane.take_tail(min(lane.recalls, RECALL_RECORDS))
            records = self._recalled(taken)
            if self._withdrawn:
                self._withdrawn.difference_update(taken)
            lane.head.extend(records)
            lane.bytes = lane.note_size(records)

    def _add_lane(self, priority: int) -> Lane:
        lane = self._lanes[priority] = Lane(priority)
        heappush(self._priorities, -priority)
        if self._top is None or priority > self._top.priority:
            self._top = lane
        return lane

    def _next_lane(self) -> Lane | None:
        """Drop the top lane, which is empty, unless it is the last: that one will be needed again."""
        if len(self._priorities) <= 1:
            return None
        del self._lanes[-heappop(self._priorities)]
        self._top = self._lanes[-self._priorities[0]]
        return self._top

    def _rebuild(self) -> None:
        for lane in self._lanes.values():
            lane.head = deque([record for record in lane.head if record[3] not in self._withdrawn])
            lane.bytes = sum([len(record[7]) for record in lane.head])
            lane.tail = array("Q", [number for number in lane.tail[lane.drained :] if number not in self._withdrawn])
            lane.drained = 0
            lane.returned = [entry for entry in lane.returned if entry[3].state is State.WAITING]
            heapify(lane.returned)
        self._withdrawn.clear()


def _first_wanted(lane: Lane, wants: Callable[[Record], bool]) -> Message | None:
    """Return the first message that was handed out before, or stands in another's place, and is wanted."""
    returned = lane.returned
    while returned and returned[0][3].state is not State.WAITING:
        heappop(returned)
    if returned and wants(returned[0][3].record):
        return returned[0][3]
    for _, _, _, message in sorted(returned):
        if message.state is State.WAITING and wants(message.record):
            return message
    return None


def _holds(sequences: "array[int]", sequence: int, start: int) -> bool:
    """Tell whether an ascending array has this sequence, from `start` on."""
    index = bisect_left(sequences, sequence, start)
    return index < len(sequences) and sequences[index] == sequence
