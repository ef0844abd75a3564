"""The short way through bincode for what is sent most often, by fixed layouts; `bincode` has the long way for the rest.

Whether both ways mean the same is what tests compare. Readers give up without a word where a frame is not as plain as
they expect, and the long way decides what it is.
"""

import struct
from typing import NamedTuple, get_args

from penstock.model.limits import SECONDS_MAX
from penstock.model.message import Message
from penstock.protocols.native import bincode
from penstock.protocols.native.json import Refused
from penstock.protocols.native.messages import (
    ANSWERS,
    REQUESTS,
    Answer,
    AnyRequest,
    Delivery,
    Fetch,
    Finish,
    LevelName,
    NoticeOf,
    Ok,
    Post,
    StageName,
)

_POST, _FETCH, _FINISH = REQUESTS.index(Post), REQUESTS.index(Fetch), REQUESTS.index(Finish)
_OK, _NOTICE, _DELIVERY = ANSWERS.index(Ok), ANSWERS.index(NoticeOf), ANSWERS.index(Delivery)
_STAGES: tuple[StageName, ...] = get_args(get_args(StageName)[0])
_STAGE_NUMBERS: dict[str, int] = {name: number for number, name in enumerate(_STAGES)}
_LEVELS: tuple[LevelName, ...] = get_args(get_args(LevelName)[0])
_LEVEL_NUMBERS = {name: number for number, name in enumerate(_LEVELS)}

# Layouts; a byte before what may be absent says whether it is there.

_NAMED = struct.Struct("<IBQ")  # variant, 1, bytes of a queue's name
_POST_END = struct.Struct("<IBQ")  # priority, 1, label
#: `notify` to `dedup_id` when all are left out.
_POST_REST = bytes(8 + 8 + 1 + 8 + 8 + 4)
_FETCH_HEAD = struct.Struct("<IQ")  # variant, bytes of a queue's name
_FETCH_END = struct.Struct("<dBIBQBIB")  # block, no work timeout, sync, 1, label, no tags, match, no selector
_FINISH_END = struct.Struct("<QI2s")  # sequence, shard, neither label nor response
_FINISH_CONFIRMED = struct.Struct("<QIBQBI")  # sequence, shard, 1, label, 1, response
_OK_WHOLE = struct.Struct("<IBQBIBQB")  # variant, 1, label, late, shard, 1, sequence, no count
_OK_BARE = struct.Struct("<IBQBI2s")  # variant, 1, label, late, shard, neither sequence nor count
_NOTICE_WHOLE = struct.Struct("<IBQIB")  # variant, 1, label, stage, late
_DELIVERY_HEAD = struct.Struct("<IBQIQQ")  # variant, 1, label, shard, sequence, bytes of the body
_DELIVERY_BARE = struct.Struct("<IBIQQ")  # the same without a label
_DELIVERY_END = struct.Struct("<IIIQBd")  # id, attempt, priority, no headers, whether redelivered, published at
_DELIVERY_HEADERS = struct.Struct("<III")
_U32 = struct.Struct("<I")
_LENGTH = struct.Struct(">I")
_NEITHER = b"\0\0"
#: Queues and subscribers that a writer or a reader remembers; the next one makes it begin afresh.
_ORIGINS_MAX = 1000


# The broker's side.


def read_request(data: bytes, position: int, end: int) -> AnyRequest | Refused:
    """Read the request that stands between two positions; what follows its last field is passed over."""
    found: AnyRequest | None = None
    if end - position >= _NAMED.size:
        variant, has_queue, size = _NAMED.unpack_from(data, position)
        if variant == _POST and has_queue == 1:
            found = _read_post(data, position + _NAMED.size, size, end)
        elif variant == _FINISH and has_queue == 1:
            found = _read_finish(data, position + _NAMED.size, size, end)
        elif variant == _FETCH:
            found = _read_fetch(data, position, end)
    return found or bincode.read_request(data, position, end)


def _read_post(data: bytes, name_start: int, name_size: int, end: int) -> Post | None:
    """Read a post to a queue that says nothing beyond priority and label."""
    start = name_start + name_size
    body_start = start + 8
    if end < body_start:
        return None
    body_end = body_start + int.from_bytes(data[start:body_start], "little")
    label_end = body_end + _POST_END.size
    if end - label_end < len(_POST_REST):
        return None
    priority, has_label, label = _POST_END.unpack_from(data, body_end)
    if has_label != 1 or not data.startswith(_POST_REST, label_end):
        return None
    queue = _name(data, name_start, start)
    if queue is None:
        return None
    return Post(queue=queue, message=data[body_start:body_end], priority=priority, label=label)  # type: ignore[arg-type]  # bytes, as bincode has it


def _read_finish(data: bytes, name_start: int, name_size: int, end: int) -> Finish | None:
    """Read a finish that names its queue, and wants no answer, or one of a level."""
    start = name_start + name_size
    queue = _name(data, name_start, start)
    if end - start < _FINISH_END.size or queue is None:
        return None
    sequence, shard, neither = _FINISH_END.unpack_from(data, start)
    if neither == _NEITHER:
        return Finish(queue=queue, sequence=sequence, shard=shard)
    if end - start < _FINISH_CONFIRMED.size:
        return None
    _, _, has_label, label, has_response, response = _FINISH_CONFIRMED.unpack_from(data, start)
    if has_label != 1 or has_response != 1 or response >= len(_LEVELS):
        return None
    return Finish(queue=queue, sequence=sequence, shard=shard, label=label, response=_LEVELS[response])


def _read_fetch(data: bytes, position: int, end: int) -> Fetch | None:
    """Read a fetch with a label that says nothing beyond how long it waits, and how far it is to be persisted."""
    _, size = _FETCH_HEAD.unpack_from(data, position)
    name_start = position + _FETCH_HEAD.size
    start = name_start + size
    if end - start < _FETCH_END.size:
        return None
    block, has_work, sync, has_label, label, has_tags, match, has_selector = _FETCH_END.unpack_from(data, start)
    is_plain = has_label == 1 and not (has_work or has_tags or match or has_selector)
    queue = _name(data, name_start, start)
    if not is_plain or queue is None or sync >= len(_LEVELS) or not 0 <= block <= SECONDS_MAX:
        return None
    return Fetch(queue=queue, block_timeout=block, sync=_LEVELS[sync], label=label)


def _name(data: bytes, start: int, end: int) -> str | None:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        return None


class BincodeWriter:
    """Writes answers; on a stream each begins with its length."""

    is_text = False
    __slots__ = ("_is_framed", "_origins")

    def __init__(self, *, is_framed: bool) -> None:
        self._is_framed = is_framed
        #: The fields from `queue` to `topic`, by the queue or subscriber that messages come from.
        self._origins: dict[object, bytes] = {}

    def answer(self, answer: Answer) -> bytes:
        """Return an answer as a frame."""
        return self._framed(bincode.written(answer))

    def ok(self, label: int, sequence: int | None) -> bytes:
        """Return what answers a post, or a settlement that was not late."""
        if sequence is None:
            return self._framed(_OK_BARE.pack(_OK, 1, label, 0, 0, _NEITHER))
        return self._framed(_OK_WHOLE.pack(_OK, 1, label, 0, 0, 1, sequence, 0))

    def notice(self, label: int, stage: str) -> bytes:
        """Return a notice of a stage."""
        return self._framed(_NOTICE_WHOLE.pack(_NOTICE, 1, label, _STAGE_NUMBERS[stage], 0))

    def delivery(self, message: Message, label: int | None) -> bytes:
        """Return a message."""
        record = message.record
        body = record[7]
        if label is None:
            head = _DELIVERY_BARE.pack(_DELIVERY, 0, 0, record[3], len(body))
        else:
            head = _DELIVERY_HEAD.pack(_DELIVERY, 1, label, 0, record[3], len(body))
        origin = self._origins.get(message.cursor) or self._learn(message)
        numbers = (message.id, message.attempt, record[5])
        if record[6] is None or not message.headers:
            end = _DELIVERY_END.pack(*numbers, 0, message.redelivered, record[2])
        else:
            fields = {"headers": message.headers, "redelivered": message.redelivered, "published_at": record[2]}
            end = _DELIVERY_HEADERS.pack(*numbers) + bincode.written_fields(Delivery, fields)
        return self._framed(b"%b%b%b%b%b" % (head, body, b"\1" if message.finished else b"\0", origin, end))

    def _framed(self, answer: bytes) -> bytes:
        return _LENGTH.pack(len(answer)) + answer if self._is_framed else answer

    def _learn(self, message: Message) -> bytes:
        fields = {"queue": message.queue, "tags": message.tags, "topic": message.topic}
        if len(self._origins) >= _ORIGINS_MAX:
            self._origins.clear()
        origin = self._origins[message.cursor] = bincode.written_fields(Delivery, fields)
        return origin


# The client's side.


def written_post(queue: bytes, body: bytes, priority: int, label: int) -> bytes:
    """Write a post to a queue that says nothing beyond priority and label."""
    head = _NAMED.pack(_POST, 1, len(queue))
    size = len(body).to_bytes(8, "little")
    return b"%b%b%b%b%b%b" % (head, queue, size, body, _POST_END.pack(priority, 1, label), _POST_REST)


def written_finish(queue: bytes, sequence: int, shard: int, label: int, response: LevelName) -> bytes:
    """Write a finish that is answered when it is persisted so far."""
    end = _FINISH_CONFIRMED.pack(sequence, shard, 1, label, 1, _LEVEL_NUMBERS[response])
    return b"%b%b%b" % (_NAMED.pack(_FINISH, 1, len(queue)), queue, end)


class _Origin(NamedTuple):
    """Where a message comes from."""

    queue: str | None
    tags: tuple[str, ...]
    topic: str | None


class AnswerReader:
    """Reads answers."""

    __slots__ = ("_origins",)

    def __init__(self) -> None:
        #: By the bytes of the fields from `queue` to `topic`.
        self._origins: dict[bytes, _Origin] = {}

    def read(self, data: bytes, position: int, end: int) -> Answer:
        """Read the answer that stands between two positions."""
        size = end - position
        if size >= _NOTICE_WHOLE.size and data[position + 4] == 1:
            (variant,) = _U32.unpack_from(data, position)
            found: Answer | None = None
            if variant == _DELIVERY:
                return self._read_delivery(data, position, end)
            if variant == _OK and size == _OK_WHOLE.size:
                found = _read_ok(data, position)
            elif variant == _NOTICE:
                found = _read_notice(data, position)
            if found is not None:
                return found
        return bincode.read_answer(data, position, end)

    def _read_delivery(self, data: bytes, position: int, end: int) -> Answer:
        """Read a message; one without headers from a queue that is known by the short way."""
        if end - position < _DELIVERY_HEAD.size + _DELIVERY_END.size + 1:
            return bincode.read_answer(data, position, end)
        _, _, label, shard, sequence, size = _DELIVERY_HEAD.unpack_from(data, position)
        body_start = position + _DELIVERY_HEAD.size
        body_end, rest = body_start + size, end - _DELIVERY_END.size
        ident, attempt, priority, headers, redelivered, published_at = _DELIVERY_END.unpack_from(data, rest)
        bytes_of_origin = data[body_end + 1 : rest]
        origin = self._origins.get(bytes_of_origin)
        if origin is None or headers:
            return self._learn(bincode.read_answer(data, position, end), bytes_of_origin)
        return Delivery(
            label=label,
            shard=shard,
            sequence=sequence,
            body=data[body_start:body_end],  # type: ignore[arg-type]  # bytes, as bincode has it
            finished=data[body_end] == 1,
            queue=origin.queue,
            tags=origin.tags,
            topic=origin.topic,
            id=ident,
            attempt=attempt,
            priority=priority,
            headers={},
            redelivered=redelivered == 1,
            published_at=published_at,
        )

    def _learn(self, answer: Answer, bytes_of_origin: bytes) -> Answer:
        if isinstance(answer, Delivery) and not answer.headers:
            if len(self._origins) >= _ORIGINS_MAX:
                self._origins.clear()
            self._origins[bytes_of_origin] = _Origin(answer.queue, answer.tags, answer.topic)
        return answer


def _read_ok(data: bytes, position: int) -> Ok | None:
    _, _, label, late, shard, has_sequence, sequence, has_count = _OK_WHOLE.unpack_from(data, position)
    if late or has_sequence != 1 or has_count:
        return None
    return Ok(label=label, shard=shard, sequence=sequence)


def _read_notice(data: bytes, position: int) -> NoticeOf | None:
    _, _, label, stage, late = _NOTICE_WHOLE.unpack_from(data, position)
    if late > 1 or stage >= len(_STAGES):
        return None
    return NoticeOf(label=label, notice=_STAGES[stage], late=late == 1)
