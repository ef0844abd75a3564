"""Bad input: each kind has its own error, with data in it, and changes nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.model.errors import (
    BadRequest,
    NoObject,
    NotAssigned,
    ObjectAlreadyExists,
    StoreDamaged,
    StoreInUse,
    StoreTooNew,
    StoreUnreadable,
    TooLarge,
    Unavailable,
)
from penstock.model.limits import Limits
from tests.broker.conftest import Opener

NOBODY = 65534
CONTROL = "a\x07b"
NO_PATHS: list[Any] = [7, "", "a\0b", "\ud800"]

BAD_PUBLISHES: dict[str, tuple[dict[str, Any], str]] = {
    "control character in the name": ({"queue": CONTROL}, "queue"),
    "empty name": ({"queue": ""}, "queue"),
    "long name": ({"queue": "x" * 256}, "queue"),
    "name that is no text": ({"queue": 7}, "queue"),
    "name that is not UTF-8": ({"queue": "\ud800"}, "queue"),
    "comma in a tag": ({"tags": ["a,b"]}, "tags"),
    "tags that are a text": ({"tags": "eu"}, "tags"),
    "tag that is no text": ({"tags": [1]}, "tags"),
    "body that is a text": ({"body": "text"}, "body"),
    "body that is None": ({"body": None}, "body"),
    "priority below zero": ({"priority": -1}, "priority"),
    "priority over 32 bits": ({"priority": 2**32}, "priority"),
    "priority that is a truth value": ({"priority": True}, "priority"),
    "negative delay": ({"delay": -1}, "delay"),
    "delay that is not a number": ({"delay": float("nan")}, "delay"),
    "delay without end": ({"delay": float("inf")}, "delay"),
    "delay in milliseconds": ({"delay": 1e13}, "delay"),
    "ttl of nothing": ({"ttl": 0}, "ttl"),
    "headers that are a list": ({"headers": [("a", "b")]}, "headers"),
    "header that is a number": ({"headers": {"a": 1}}, "headers"),
    "control character in the key": ({"key": CONTROL}, "key"),
    "empty group": ({"group": ""}, "group"),
    "dedup id that is a number": ({"dedup_id": 3}, "dedup_id"),
    "unknown stage": ({"notify": ["done"]}, "notify"),
    "label below zero": ({"notify": ["sync"], "label": -1}, "label"),
    "unknown level": ({"confirm": "maybe"}, "confirm"),
}


async def state(broker: Broker) -> tuple[int, list[dict[str, Any]]]:
    """Return what must not change."""
    statuses = [status.as_dict() for status in await broker.queues()]
    for status in statuses:
        del status["oldest_age_seconds"]
    return broker._engine.effects.position, statuses


@pytest.mark.parametrize("name", BAD_PUBLISHES)
async def test_a_bad_publish_is_refused(broker: Broker, name: str) -> None:
    """`BadRequest` names the field at fault, and there is no trace of the message."""
    arguments, key = BAD_PUBLISHES[name]
    before = await state(broker)
    with pytest.raises(BadRequest) as error:
        await broker.enqueue(**{"queue": "orders", "body": b"1", **arguments})
    assert error.value.key == key
    assert await state(broker) == before


async def test_a_bad_body_among_many_refuses_all(broker: Broker) -> None:
    """`enqueue_many` looks at all of them first."""
    before = await state(broker)
    with pytest.raises(BadRequest):
        await broker.enqueue_many("orders", [b"1", "2"])  # type: ignore[list-item]
    with pytest.raises(BadRequest):
        await broker.enqueue_many("orders", [b"1"], delay=-1)
    with pytest.raises(BadRequest):
        await broker.enqueue_many(CONTROL, [b"1"])
    assert await state(broker) == before


async def test_what_passes_a_limit_is_too_large() -> None:
    """`TooLarge` tells the size and the limit; exactly the limit is allowed."""
    limits = Limits(body_bytes_max=10, headers_max=1, header_bytes_max=4, channels_max=2)
    async with Broker.open("memory:", limits=limits) as broker:
        await broker.enqueue("orders", b"x" * 10, headers={"ab": "cd"})
        before = await state(broker)
        for arguments, key, size, limit in (
            ({"body": b"x" * 11}, "body", 11, 10),
            ({"headers": {"abc": "de"}}, "headers", 5, 4),
            ({"headers": {"a": "", "b": ""}}, "headers", 2, 1),
        ):
            with pytest.raises(TooLarge) as error:
                await broker.enqueue(**{"queue": "orders", "body": b"1", **arguments})
            assert (error.value.key, error.value.data) == (key, {"size": size, "limit": limit})
        assert await state(broker) == before
        await broker.create_queue("second")
        with pytest.raises(TooLarge) as error:
            await broker.enqueue("third", b"1")
        assert error.value.data == {"size": 3, "limit": 2}


async def test_what_does_not_exist_is_no_object(broker: Broker) -> None:
    """An unknown queue, topic or subscriber is named in the error."""
    before = await state(broker)
    for call in (
        broker.status("orders", tags=["eu"]),
        broker.alter_queue("orders", tags=["eu"], retry_limit=1),
        broker.delete_queue("orders", tags=["eu"]),
        broker.purge_queue("orders", tags=["eu"]),
        broker.peek("orders", tags=["eu"]),
        broker.redrive("orders", tags=["eu"]),
    ):
        with pytest.raises(NoObject) as error:
            await call
        assert error.value.data == {"queue": "orders", "tags": ["eu"]}
    for topic in (broker.topic_status("news"), broker.alter_topic("news", ttl=1), broker.delete_topic("news")):
        with pytest.raises(NoObject) as error:
            await topic
        assert error.value.data == {"topic": "news"}
    with pytest.raises(NoObject):
        await broker.unsubscribe("news", "reader")
    assert await state(broker) == before


async def test_bad_settings_are_refused(broker: Broker) -> None:
    """Unknown names and values out of range are named, and the queue is neither made nor changed."""
    await broker.create_queue("there", retry_limit=3)
    before = await state(broker)
    for key, value in (
        ("retry_limits", 1),
        ("retry_limit", 0),
        ("retry_limit", "3"),
        ("heartbeat_timeout", 0),
        ("retry_delay", -1),
        ("retry_backoff", 0.5),
        ("max_length", 0),
        ("overflow", "explode"),
        ("ttl", 0),
        ("paused", "yes"),
        ("dead_letter", CONTROL),
    ):
        for call in (broker.create_queue("new", **{key: value}), broker.alter_queue("there", **{key: value})):
            with pytest.raises(BadRequest) as error:
                await call
            assert error.value.key == key
    with pytest.raises(BadRequest):
        await broker.create_queue("new", dead_letter="new")
    with pytest.raises(ObjectAlreadyExists):
        await broker.create_queue("there", exclusive=True)
    await broker.create_queue("there", retry_limit=9)
    assert await state(broker) == before


async def test_bad_ways_of_taking_are_refused(broker: Broker) -> None:
    """Waits, leases, matches, credits and selectors that make no sense are named."""
    await broker.enqueue("orders", b"1")
    before = await state(broker)
    for call, key in (
        (broker.poll("orders", wait=-1), "wait"),
        (broker.poll("orders", work_timeout=0), "work_timeout"),
        (broker.poll("orders", work_timeout=-5, tags=[]), "work_timeout"),
        (broker.poll("orders", sync="maybe"), "sync"),
        (broker.poll_many("orders", 5, sync="maybe"), "sync"),
        (broker.poll_many("orders", 5, wait=-1), "wait"),
        (broker.poll("orders", tags=["a"], match="some"), "match"),
        (broker.poll("orders", match="some"), "match"),
        (broker.poll("orders", selector="a ="), "selector"),
        (broker.poll(CONTROL), "queue"),
        (broker.poll_many("orders", 0), "most"),
        (broker.pop("orders", wait=float("nan")), "wait"),
    ):
        with pytest.raises(BadRequest) as error:
            await call
        assert error.value.key == key
    with pytest.raises(BadRequest):
        broker.subscribe("orders", credit=0)
    with pytest.raises(BadRequest):
        broker.subscribe(topic=CONTROL)
    for names in (("news", ["reader"]), (["news"], "reader")):
        with pytest.raises(BadRequest):
            await broker.unsubscribe(*names)  # type: ignore[arg-type]
    for path in (None, *NO_PATHS):
        with pytest.raises(BadRequest) as error:
            await broker.backup(path)
        assert error.value.key == "path"
    assert await state(broker) == before


async def test_a_message_of_others_cannot_be_settled(broker: Broker) -> None:
    """A finished message is `NoObject`; one that has moved on is `NotAssigned`; each outcome says so."""
    await broker.enqueue_many("orders", [b"1", b"2"])
    finished, lost = await broker.poll_many("orders", 2)
    await broker.complete(finished)
    await broker.release(lost)
    again = await broker.poll("orders")
    assert again is not None
    before = await state(broker)
    for settle in (broker.complete, broker.fail, broker.release, broker.reject, broker.keep_alive):
        with pytest.raises(NoObject) as gone:
            await settle(finished)  # type: ignore[operator]
        with pytest.raises(NotAssigned) as moved:
            await settle(lost)  # type: ignore[operator]
        assert (gone.value.data["sequence"], moved.value.data["sequence"]) == (finished.sequence, lost.sequence)
    assert await state(broker) == before
    await broker.complete(again)


@pytest.mark.parametrize("reason", [None, 7, b"no text", object(), "\ud800"])
async def test_a_bad_reason_is_refused(broker: Broker, reason: Any) -> None:
    """Neither the call nor a transaction takes it: the store could not write it."""
    await broker.enqueue("orders", b"1")
    message = await broker.poll("orders")
    assert message is not None
    before = await state(broker)
    transaction = broker.transaction()
    for call in (broker.fail, broker.reject):
        with pytest.raises(BadRequest) as error:
            await call(message, reason=reason)  # type: ignore[operator]
        assert error.value.key == "reason"
        with pytest.raises(BadRequest):
            await broker.fail_many([message], reason=reason)
    for collect in (transaction.fail, transaction.reject):
        with pytest.raises(BadRequest):
            collect(message, reason=reason)
    assert await state(broker) == before


@pytest.mark.parametrize("message", [None, "orders", 7, [], object()])
async def test_what_is_no_message_cannot_be_settled(broker: Broker, message: Any) -> None:
    """As when a poll found nothing, and its answer was not looked at."""
    transaction = broker.transaction()
    before = await state(broker)
    for call in (broker.complete, broker.fail, broker.release, broker.reject):
        with pytest.raises(BadRequest) as error:
            await call(message)  # type: ignore[operator]
        assert error.value.key == "message"
    for many in (broker.complete_many, broker.fail_many, broker.release_many, broker.reject_many):
        with pytest.raises(BadRequest):
            await many([message])  # type: ignore[operator]
    for collect in (transaction.complete, transaction.fail, transaction.release, transaction.reject):
        with pytest.raises(BadRequest):
            collect(message)  # type: ignore[operator]
    with pytest.raises(BadRequest):
        await broker.complete_many(7)  # type: ignore[arg-type]
    assert await state(broker) == before


async def test_a_message_of_another_broker_cannot_be_settled(broker: Broker) -> None:
    """Not even where two brokers live in one process: neither has changed."""
    await broker.enqueue("orders", b"1")
    message = await broker.poll("orders")
    assert message is not None
    async with Broker.open("memory:") as other:
        before = await state(broker), await state(other)
        for call in (other.complete, other.fail, other.release, other.reject, other.keep_alive):
            with pytest.raises(NoObject) as error:
                await call(message)  # type: ignore[operator]
            assert error.value.data == {"sequence": message.sequence}
        with pytest.raises(NoObject):
            other.transaction().complete(message)
        assert (await state(broker), await state(other)) == before


class Text(str):
    """A text as programs have them that keep theirs in enumerations."""

    __slots__ = ()


class Number(int):
    """A whole number of the same kind."""


async def test_kinds_of_texts_and_numbers_are_what_they_look_like(on_disk: Opener) -> None:
    """A store takes exact types only; what a program has made of them is written, and comes back, as these."""
    async with on_disk() as broker:
        await broker.create_queue(Text("orders"), tags=[Text("eu")], max_length=Number(9), overflow=Text("reject"))
        await broker.enqueue(
            Text("orders"),
            b"1",
            tags=[Text("eu")],
            priority=Number(7),
            headers={Text("name"): Text("value")},
            key=Text("k"),
            group=Text("g"),
            dedup_id=Text("d"),
            delay=Number(0),
            notify=[Text("finish")],
            label=Number(3),
        )
        broker.subscribe(topic=Text("news"), durable=Text("reader")).close()
        message = await broker.poll("orders", work_timeout=Number(60))
        assert message is not None
        await broker.fail(message, reason=Text("tired"))
        await broker.collect()
    async with on_disk() as broker:
        message = await broker.poll("orders")
        assert message is not None
        assert (message.headers, message.key, message.group) == ({"name": "value"}, "k", "g")


async def test_a_broker_that_is_not_open_says_so() -> None:
    """Before it is started and after it was closed every call is `Unavailable`."""
    broker = Broker.open("memory:")
    for _ in range(2):
        with pytest.raises(Unavailable) as error:
            await broker.enqueue("orders", b"1")
        assert error.value.key == "broker"
        with pytest.raises(Unavailable):
            broker.subscribe("orders")
        for looking in (broker.status("orders"), broker.topic_status("news"), broker.peek("orders"), broker.queues()):
            with pytest.raises(Unavailable):
                await looking
        assert not broker.is_healthy
        async with Broker.open("memory:") as broker:
            assert broker.is_healthy
            with pytest.raises(Unavailable):
                await broker.start()
    await broker.close()


# Directories.


async def refused(where: Path, kind: type[Exception], named: Path | None = None) -> Any:
    """Return the error that a broker on this place raises, which names the place, or the file that is at fault."""
    with pytest.raises(kind) as error:
        await Broker.open(where).start()
    assert str(named or where) in str(error.value)
    return error.value


async def test_a_directory_that_is_in_use_is_refused(tmp_path: Path, on_disk: Opener) -> None:
    """The second broker is told by whom, the first goes on; afterwards the directory is free."""
    async with on_disk() as broker:
        error = await refused(tmp_path / "data", StoreInUse)
        assert str(os.getpid()) in str(error)
        await broker.enqueue("orders", b"1")
    async with on_disk() as broker:
        assert (await broker.status("orders")).ready == 1


async def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """A file in the way is left as it is."""
    place = tmp_path / "file"
    place.write_bytes(b"mine")
    await refused(place, StoreUnreadable)
    assert place.read_bytes() == b"mine"
    await refused(place / "below", StoreUnreadable)


async def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path, on_disk: Opener) -> None:
    """For lack of permission; nothing in it is changed."""
    async with on_disk():
        pass
    place = tmp_path / "data"
    place.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)  # root may read everything
    try:
        await refused(place, StoreUnreadable)
    finally:
        os.seteuid(user)
        place.chmod(0o700)


async def test_a_directory_of_a_newer_format_is_refused(tmp_path: Path, on_disk: Opener) -> None:
    """The file is named with both versions, and stays as it is."""
    async with on_disk() as broker:
        await broker.enqueue("orders", b"1")
    (segment,) = (tmp_path / "data").rglob("*.seg")
    (index,) = (tmp_path / "data").rglob("*.idx")
    for path in (segment, index):
        content = path.read_bytes()
        changed = newer(content)
        path.write_bytes(changed)
        error = await refused(tmp_path / "data", StoreTooNew, path)
        assert error.data["found"] > error.data["known"]
        assert path.read_bytes() == changed
        path.write_bytes(content)


def newer(content: bytes) -> bytes:
    """Return a file as a newer version would begin it: another number after the magic."""
    return content[:8] + bytes([content[8] + 9]) + content[9:]


async def test_a_damaged_directory_is_refused(tmp_path: Path, on_disk: Opener) -> None:
    """Damage before the tail is named with file and offset, and nothing is changed."""
    async with on_disk() as broker:
        for number in range(50):
            await broker.enqueue("orders", b"%d" % number * 100)
    (segment,) = (tmp_path / "data").rglob("*.seg")
    content = bytearray(segment.read_bytes())
    content[5000] ^= 1
    segment.write_bytes(content)
    error = await refused(tmp_path / "data", StoreDamaged, segment)
    assert error.data["file"] == str(segment)
    assert 0 < error.data["offset"] <= 5000
    assert segment.read_bytes() == bytes(content)


def test_a_store_that_is_none_is_refused() -> None:
    """What is neither a text nor a path nor a store, and options that a store does not take, are named."""
    with pytest.raises(BadRequest):
        Broker.open(7)  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        Broker.open("memory:", segment_bytes=7)
    with pytest.raises(BadRequest):
        Broker.open("memory:", retain_log=(-1.0, 0))
    with pytest.raises(BadRequest):
        Broker.open("memory:", confirm="maybe")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        Broker.open("data", segment_bytes=100)
    for path in NO_PATHS:
        with pytest.raises(BadRequest) as error:
            Broker.open(path)
        assert error.value.key == "store"
        with pytest.raises(BadRequest) as error:
            Broker.open("memory:", restore=path)
        assert error.value.key == "restore"
