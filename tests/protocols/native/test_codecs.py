"""JSON and bincode: what is written is read again, short ways mean what long ways mean, and nonsense costs nothing."""

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.message import Message, State
from penstock.model.records import Attribute, Kind
from penstock.model.stages import STAGE_NAMES
from penstock.protocols.native import bincode, often
from penstock.protocols.native import json as native_json
from penstock.protocols.native.json import JsonWriter, Refused, body_of, shown_body
from penstock.protocols.native.messages import (
    UINT64_MAX,
    Answer,
    Batch,
    Delivery,
    Fetch,
    Finish,
    NoticeOf,
    Ok,
    Post,
    Request,
)
from penstock.protocols.native.streams import PREFACE, Frames, Lines
from tests.protocols.native.peers import CARRIERS, Native, World
from tests.protocols.native.vocabulary import answers, requests

U64 = st.integers(0, UINT64_MAX)


def plain(request: Any) -> Any:
    """Return a request or answer with its bodies as bytes, in whatever form they were."""
    if isinstance(request, Batch):
        return Batch(requests=[plain(one) for one in request.requests], label=request.label)
    if isinstance(request, Post):
        request.message = body_of(request.message)  # type: ignore[assignment]  # as bincode has it
    elif isinstance(request, Delivery):
        request.body = body_of(request.body)  # type: ignore[assignment]  # as bincode has it
    return request


@given(requests())
def test_a_request_in_json_is_read_as_it_was_written(request_: Request) -> None:
    """Every field of every kind, and the same by the line and by the lines."""
    line = native_json.written(request_)
    assert native_json.read_line(line) == request_
    assert native_json.read_lines(line + b"\n\n" + line + b"\n") == [request_, request_]


@given(answers())
def test_an_answer_in_json_is_read_as_it_was_written(answer: Answer) -> None:
    """Any JSON library can read it, too."""
    line = native_json.written(answer)
    assert native_json.read_answer(line) == answer
    assert json.loads(line)["type"] == answer.name


@given(requests())
def test_a_request_in_bincode_is_read_as_it_was_written(request_: Request) -> None:
    """Wherever it stands, and whatever follows it."""
    data = bincode.written(request_)
    read = often.read_request(b"before" + data + b"after", 6, 6 + len(data))
    assert plain(read) == plain(request_)


@given(answers())
def test_an_answer_in_bincode_is_read_as_it_was_written(answer: Answer) -> None:
    """Maps keep their order, texts their letters."""
    assert plain(bincode.read_answer(bincode.written(answer))) == plain(answer)


QUEUES, LABELS = st.none() | st.text(max_size=5), st.none() | U64
LEVELS = st.none() | st.sampled_from(["ready", "sync"])
FETCHES = st.builds(
    Fetch, queue=st.text(max_size=5), block_timeout=st.floats(0, 9), label=LABELS, sync=st.sampled_from(["ready", "sync"]),
    work_timeout=st.none() | st.just(1.0), match=st.sampled_from(["exact", "any"]), selector=st.none() | st.just("a"),
)  # fmt: skip
OFTEN = (
    FETCHES
    | st.builds(Post, queue=QUEUES, message=st.text(max_size=5), priority=st.integers(0, 9), label=LABELS)
    | st.builds(Finish, queue=QUEUES, sequence=U64, shard=st.integers(0, 9), label=LABELS, response=LEVELS)
)


@given(OFTEN, st.integers(0, 30))
def test_what_is_read_often_is_read_like_all_else(request_: Request, cut: int) -> None:
    """The short way through a `post`, a `fetch` and a `finish` finds what the long way finds, on a broken frame too."""
    data = bincode.written(request_)
    data = b"x" + data[: max(0, len(data) - cut)]
    short, long = (read(data, 1, len(data)) for read in (often.read_request, bincode.read_request))
    assert isinstance(short, Refused) == isinstance(long, Refused)
    assert isinstance(short, Refused) or short == long


@given(st.text(max_size=5), st.binary(max_size=9), st.integers(0, 9), U64, st.sampled_from(["ready", "write", "sync"]))
def test_what_clients_write_often_is_written_like_all_else(
    queue: str, body: bytes, priority: int, label: int, response: Any
) -> None:
    """A `post` and a `finish` have the same bytes either way."""
    post = Post(queue=queue, message=body, priority=priority, label=label)  # type: ignore[arg-type]  # as bincode has it
    assert often.written_post(queue.encode(), body, priority, label) == bincode.written(post)
    finish = Finish(queue=queue, sequence=label, shard=priority, label=label, response=response)
    assert often.written_finish(queue.encode(), label, priority, label, response) == bincode.written(finish)


@given(st.lists(answers(), max_size=5))
def test_what_clients_read_often_is_read_like_all_else(said: list[Answer]) -> None:
    """Messages of queues that are known and unknown, with headers and without."""
    reader = often.AnswerReader()
    for answer in [*said, *said]:
        data = b"before" + bincode.written(answer)
        assert plain(reader.read(data, 6, len(data))) == plain(answer)


def assigned(body: bytes, *, attributes: dict[int, Any] | None = None, tags: tuple[str, ...] = ()) -> Message:
    """Return a message in somebody's hands."""

    class Cursor:
        number, name, is_queue = 7, "größe", True

    cursor = Cursor()
    cursor.tags = frozenset(tags)  # type: ignore[attr-defined]  # a message needs no more of a cursor
    message = Message((int(Kind.PUBLISH), 7, 1700000000.25, 2**40, 3, 9, attributes, body), cursor)
    message.id, message.attempt, message.state = 4, 2, State.ASSIGNED
    return message


MESSAGES = [
    assigned(b"text"),
    assigned(b"\xff\x00", tags=("eu", "fast")),
    assigned("größe".encode(), attributes={int(Attribute.HEADERS): {"colour": "red", "ß": "ü"}}),
    assigned(b"", attributes={int(Attribute.KEY): "k"}),
]


def delivery_of(message: Message, label: int | None) -> Delivery:
    """Return the answer that a message is."""
    return Delivery(
        label=label, shard=0, sequence=message.sequence, body=shown_body(message.body), finished=message.finished,
        queue=message.queue, tags=tuple(message.tags), topic=message.topic, id=message.id, attempt=message.attempt,
        priority=message.priority, headers=dict(message.headers), redelivered=message.redelivered,
        published_at=message.published_at,
    )  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
@pytest.mark.parametrize("label", [None, 0, UINT64_MAX])
def test_messages_written_the_short_way_are_those_of_the_long_way(message: Message, label: int | None) -> None:
    """In both languages, from a queue and from a topic, popped or not."""
    for message.redelivered in (False, True):
        for message.state in (State.ASSIGNED, State.SETTLED):
            for message.cursor.is_queue in (True, False):
                expected = delivery_of(message, label)
                for _ in range(2):  # the first of a queue teaches the writer
                    written = JsonWriter(b"\n").delivery(message, label)
                    assert written == native_json.written(expected) + b"\n"
                    writer = often.BincodeWriter(is_framed=False)
                    assert writer.delivery(message, label) == bincode.written(expected)
                    assert writer.delivery(message, label) == bincode.written(expected)


def _notice(label: int, stage: str, writer: Any) -> bytes:
    written: bytes = writer.notice(label, stage)
    return written


@pytest.mark.parametrize("label", [0, 1, UINT64_MAX])
@pytest.mark.parametrize("is_framed", [True, False])
def test_answers_written_the_short_way_are_those_of_the_long_way(label: int, is_framed: bool) -> None:
    """`ok` and `notice` of every stage."""
    writer, text = often.BincodeWriter(is_framed=is_framed), JsonWriter(b"\n")
    pairs: list[tuple[Callable[[Any], bytes], Answer]] = [
        (lambda one: one.ok(label, None), Ok(label=label)),
        (lambda one: one.ok(label, 2**50), Ok(label=label, sequence=2**50)),
        *((partial(_notice, label, name), NoticeOf(label=label, notice=name)) for name in STAGE_NAMES),
    ]
    for short, expected in pairs:
        data = bincode.written(expected)
        head = len(data).to_bytes(4, "big") if is_framed else b""
        assert short(writer) == head + data
        assert native_json.read_answer(short(text)) == expected


def test_a_writer_forgets_queues_when_there_are_too_many() -> None:
    """What it remembers of them is bounded."""
    writer = often.BincodeWriter(is_framed=False)
    for _ in range(2500):
        writer.delivery(assigned(b"x"), None)
    assert len(writer._origins) <= 1000


# Streams.


@given(st.lists(requests(), min_size=1, max_size=5), st.data())
@settings(max_examples=50)
def test_frames_and_lines_may_come_in_any_pieces(wanted: list[Request], data: st.DataObject) -> None:
    """However a stream is cut, the same requests come out of it."""
    framed = PREFACE + b"".join(
        len(one).to_bytes(4, "big") + one for one in (bincode.written(request) for request in wanted)
    )
    lines = b"".join(native_json.written(request) + b"\n" for request in wanted)
    for stream, whole in ((Frames(), framed), (Lines(), lines)):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
        found: list[Any] = []
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            found += stream.feed(whole[start:end])
        assert [plain(one) for one in found] == [plain(one) for one in wanted]


@pytest.mark.parametrize("first", [b"PSTK\x02", b"GET / ", b"PSTK\x00\x00\x00\x00"])
async def test_a_stream_without_the_preface_is_ended(world: World, first: bytes) -> None:
    """A wrong version is told so."""
    peer = Native(world, "frames")
    peer.session.receive(first)
    peer.greet()
    assert peer.last_words()["key"] == "preface"


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 72 * 2**20])
async def test_a_frame_that_says_it_is_too_long_is_refused_before_it_comes(world: World, length: int) -> None:
    """Nothing is kept for it."""
    peer = world.native("frames")
    peer.session.receive(length.to_bytes(4, "big"))
    last = peer.last_words()
    assert (last["code"], last["key"]) == ("TooLarge", "request")
    assert f"a request of {length} bytes" in last["text"]


#: Requests cut off where a length stands, and what reads it.
LENGTHS: dict[str, bytes] = {
    "a text": b"\x05\0\0\0",
    "a text that may be absent": b"\x07\0\0\0\x01",
    "a body": b"\x04\0\0\0\0",
    "a list of texts": b"\x04\0\0\0\0" + bytes(8) + bytes(4) + b"\0" + bytes(8),
    "a list of stages": b"\x04\0\0\0\0" + bytes(8) + bytes(4) + b"\0",
    "a map": b"\0\0\0\0\0\0" + bytes(8) + b"\0",
    "a list of requests": b"\x0e\0\0\0",
    "a value in a map": b"\0\0\0\0\0\0" + bytes(8) + b"\0\1" + bytes(7) + bytes(8) + b"\4\0\0\0",
    "a list in a map": b"\0\0\0\0\0\0" + bytes(8) + b"\0\1" + bytes(7) + bytes(8) + b"\5\0\0\0",
}


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 65])
@pytest.mark.parametrize("where", LENGTHS)
def test_a_length_that_cannot_be_costs_no_memory(where: str, length: int) -> None:
    """`BadRequest`, before anything is made for it."""
    data = LENGTHS[where] + length.to_bytes(8, "little") + bytes(64)
    tracemalloc.start()
    read = often.read_request(data, 0, len(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(read, Refused)
    assert read.error.key
    assert peak < 20_000


def test_what_cannot_be_read_has_its_label_if_that_came_before() -> None:
    """So that whoever asked is told, and nobody else."""
    for request, label in (
        (Post(queue="a", message="x", label=7, delay=nan), 7),
        (Fetch(queue="a", block_timeout=nan), None),
    ):
        data = bincode.written(request)
        read = often.read_request(data, 0, len(data))
        assert isinstance(read, Refused)
        assert read.label == label
    batch = bincode.written(Batch(requests=[Post(queue="a", message="x", label=7, delay=nan)], label=8))
    read = often.read_request(batch, 0, len(batch))
    assert isinstance(read, Refused)
    assert (read.label, read.error.key) == (None, "requests.delay")


def test_values_that_stand_in_one_another_too_deep_are_refused() -> None:
    """A frame of lists in lists does not exhaust the stack."""
    deep = b"\5\0\0\0" + (1).to_bytes(8, "little")
    data = b"\0\0\0\0\0\0" + bytes(8) + b"\0\1" + bytes(7) + bytes(8) + deep * 100_000
    read = often.read_request(data, 0, len(data))
    assert isinstance(read, Refused)
    assert read.error.key == "settings"


# Nonsense.


@pytest.mark.slow
@pytest.mark.parametrize("carrier", CARRIERS)
@given(st.data())
@settings(max_examples=60)
async def test_whatever_is_said_the_session_goes_on(carrier: str, data: st.DataObject) -> None:
    """Damaged requests, and plain noise, are answered by errors or done; nobody else notices."""
    world = World()
    await world.start()
    other = world.native()
    peer = world.native(carrier)
    for payload in data.draw(st.lists(_payloads(is_bincode=carrier in {"frames", "binary"}), max_size=5)):
        if peer.is_open:
            peer.tell_raw(payload.replace(b"\n", b" ") if carrier == "lines" else payload)
    await world.quiet()
    assert await other.ask("ping", label=1) == {"type": "pong", "label": 1}
    if peer.is_open:
        peer.take_all()
        await peer.say("ping", label=2)
        assert peer.take_all()[-1] == {"type": "pong", "label": 2}
    await world.stop()


def _payloads(*, is_bincode: bool) -> st.SearchStrategy[bytes]:
    write = bincode.written if is_bincode else native_json.written
    return st.binary(max_size=40) | st.tuples(requests().map(write), st.randoms()).map(lambda one: _damaged(*one))


def _damaged(data: bytes, chance: Any) -> bytes:
    at = chance.randrange(len(data))
    end = chance.randrange(at, len(data))
    return bytes(data[:at] + bytes([chance.randrange(256)]) + data[end:])
