"""Notices: each stage of a message is told exactly when it is reached, and to whoever asked for it."""

import pytest

from penstock.model.limits import Limits
from tests.broker.stores import HeldStore
from tests.protocols.native.peers import CARRIERS, World

ALL = ["ready", "write", "sync", "assign", "finish", "retry", "drop"]


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_fetched_message_that_is_finished_tells_every_stage_of_its_way(world: World, carrier: str) -> None:
    """`ready`, `write` and `sync` when it is posted, `assign` when it is fetched, `finish` when it is finished."""
    publisher, worker = world.native(carrier), world.native(carrier)
    await publisher.post("a", "x", label=7, notify=ALL)
    assert {answer["label"] for answer in publisher.answers} == {7}
    assert publisher.notices() == ["ready", "write", "sync"]

    message = await worker.ask("fetch", queue="a")
    assert publisher.notices() == ["assign"]

    await worker.say("finish", queue="a", sequence=message["sequence"], shard=0)
    assert publisher.notices() == ["finish"]


async def test_retry_is_told_for_each_failure_but_the_last_and_drop_for_that(world: World) -> None:
    """With `retry_limit` 2: assign, retry, assign, drop."""
    peer = world.native()
    world.set_queue("a", retry_limit=2)
    await peer.post("a", "x", label=1, notify=ALL)
    peer.take_all()
    told = []
    for _ in range(2):
        peer.tell("fetch", queue="a")
        await world.quiet()
        message = next(answer for answer in peer.answers if answer["type"] == "message")
        await peer.say("fail", sequence=message["sequence"])
        told += [answer["notice"] for answer in peer.take_all() if answer["type"] == "notice"]
    assert told == ["assign", "retry", "assign", "drop"]


async def test_a_lease_that_runs_out_is_a_retry(world: World) -> None:
    """The worker's silence is a failure that the publisher hears of."""
    publisher, worker = world.native(), world.native()
    await publisher.post("a", "x", label=1, notify=["retry"])
    await worker.say("fetch", queue="a", work_timeout=10)
    await world.wait(9)
    assert publisher.notices() == []
    await world.wait(2)
    assert publisher.notices() == ["retry"]


#: What ends a message without success.
ENDS = {
    "reject": ("reject", {}),
    "purge": ("purge", {"queue": "a"}),
    "delete": ("delete", {"queue": "a"}),
    "replaced by its key": ("post", {"queue": "a", "message": "y", "key": "k"}),
    "too many": ("post", {"queue": "a", "message": "y"}),
}


@pytest.mark.parametrize("end", ENDS)
async def test_drop_is_the_end_without_success(world: World, end: str) -> None:
    """However a message ends that was not finished, its publisher is told `drop`."""
    publisher, other = world.native(), world.native()
    world.set_queue("a", max_length=1, overflow="drop-oldest")
    await publisher.post("a", "x", label=1, notify=ALL, key="k")
    request, fields = ENDS[end]
    if end == "reject":
        fields = {"sequence": (await other.ask("fetch", queue="a"))["sequence"]}
    publisher.take_all()
    await other.say(request, **fields)
    assert publisher.notices() == ["drop"]


async def test_a_message_too_old_is_dropped(world: World) -> None:
    """The end of its `ttl` is the end without success."""
    peer = world.native()
    await peer.post("a", "x", label=1, notify=["drop"], ttl=5)
    await world.wait(6)
    assert peer.notices() == ["drop"]


async def test_a_popped_message_tells_neither_assign_nor_retry_nor_drop(world: World) -> None:
    """What waited and is popped is finished at once."""
    publisher, worker = world.native(), world.native()
    await publisher.post("a", "x", label=1, notify=ALL)
    assert publisher.notices() == ["ready", "write", "sync"]
    message = await worker.ask("pop", queue="a")
    assert message["finished"] is True
    assert publisher.notices() == ["finish"]


async def test_a_fast_pop_says_finish_in_place_of_ready(world: World) -> None:
    """A pop that waits takes the message before it is stored; `ready` comes as `finish`, once, and the log learns of it."""
    publisher, worker = world.native(), world.native()
    world.set_queue("a")
    await worker.say("pop", queue="a", timeout=60)
    await publisher.post("a", "x", label=1, notify=ALL)
    assert worker.bodies() == ["x"]
    assert sorted(publisher.notices()) == ["finish", "sync", "write"]


@pytest.mark.parametrize("field", [{"delay": 1.0}, {"dedup_id": "d"}, {"group": "g"}])
async def test_what_must_be_stored_first_does_not_go_the_fast_way(world: World, field: dict[str, object]) -> None:
    """Posts with `dedup_id`, `delay` or `group` are stored, then popped: `ready` comes as itself."""
    publisher, worker = world.native(), world.native()
    world.set_queue("a")
    await worker.say("pop", queue="a", timeout=60)
    await publisher.post("a", "x", label=1, notify=["ready", "finish"], **field)
    assert publisher.notices()[0] == "ready"
    await world.wait(2)
    assert worker.bodies() == ["x"]


async def test_a_batch_does_not_go_the_fast_way(world: World) -> None:
    """All of it is one record, so nothing may be taken out of it before."""
    publisher, worker = world.native(), world.native()
    world.set_queue("a")
    await worker.say("pop", queue="a", timeout=60)
    post = {"type": "post", "queue": "a", "message": "x", "label": 1, "notify": ["ready", "finish"]}
    await publisher.say("batch", requests=[post])
    assert publisher.notices() == ["ready", "finish"]
    assert worker.bodies() == ["x"]


async def test_on_a_topic_assign_comes_at_the_first_and_finish_at_the_last(world: World) -> None:
    """Two subscribers: one `assign`, and `finish` when both have finished."""
    publisher, *readers = (world.native() for _ in range(3))
    for reader in readers:
        await reader.say("subscribe", topic="t")
    await publisher.say("post", topic="t", message="x", label=1, notify=["assign", "finish"])
    assert publisher.notices() == ["assign"]
    first, second = (reader.only() for reader in readers)
    await readers[0].say("finish", sequence=first["sequence"])
    assert publisher.notices() == []
    await readers[1].say("finish", sequence=second["sequence"])
    assert publisher.notices() == ["finish"]


async def test_on_a_topic_without_subscribers_finish_comes_at_once(world: World) -> None:
    """Nobody is waited for."""
    peer = world.native()
    await peer.say("post", topic="t", message="x", label=1, notify=["ready", "finish"])
    assert peer.notices() == ["ready", "finish"]


async def test_each_level_waits_for_the_store(held_world: World, store: HeldStore) -> None:
    """`ready` comes while nothing is written yet, `write` when it is written, `sync` when it is on disk."""
    peer = held_world.native()
    store.hold()
    await peer.post("a", "x", label=1, notify=["ready", "write", "sync"])
    assert peer.notices() == ["ready"]
    store.may_write.set()
    await peer.until(lambda: peer.answers)
    assert peer.notices() == ["write"]
    store.may_sync.set()
    await peer.until(lambda: peer.answers)
    assert peer.notices() == ["sync"]


async def test_what_happened_is_told_once_it_is_on_disk(held_world: World, store: HeldStore) -> None:
    """`assign` and `finish` are promises too: they wait for the records that they speak of."""
    publisher, worker = held_world.native(), held_world.native()
    await publisher.post("a", "x", label=1, notify=["sync", "assign", "finish"])
    await publisher.until(lambda: publisher.answers)
    publisher.take_all()
    store.hold()
    message = await worker.ask("fetch", queue="a")
    await worker.say("finish", sequence=message["sequence"])
    assert publisher.answers == []
    store.let_go()
    await publisher.until(lambda: len(publisher.answers) == 2)
    assert publisher.notices() == ["assign", "finish"]


@pytest.mark.parametrize("stage", ALL[:3])
async def test_only_what_was_asked_for_is_told(world: World, stage: str) -> None:
    """One stage asked for is one notice."""
    peer = world.native()
    await peer.post("a", "x", label=1, notify=[stage])
    assert peer.notices() == [stage]


async def test_notices_of_a_wake_up_go_out_in_one_write(world: World) -> None:
    """A hundred notices cost one write."""
    peer = world.native()
    writes = peer.writes
    await peer.post("a", *(str(number) for number in range(100)), label=1, notify=["ready"])
    assert (len(peer.notices()), peer.writes - writes) == (100, 1)


async def test_who_missed_more_notices_than_are_kept_is_told_so() -> None:
    """After those that were kept: what became of the other messages it has to find out otherwise."""
    world = World(limits=Limits(missed_notices_max=2))
    await world.start()
    peer, worker = world.native(), world.native()
    await peer.ask("resume", resume_timeout=60)
    for label in range(3):
        await peer.say("post", queue="a", message="x", label=label, notify=["assign"])
    await peer.vanish()
    for _ in range(3):
        await worker.say("fetch", queue="a")
    again = world.native()
    await again.say("resume", id=peer.id)
    hello, first, second, error = again.take_all()
    assert (hello["type"], first["label"], second["label"]) == ("hello", 0, 1)
    assert (error["code"], error["key"], again.is_open) == ("TooLarge", "notify", True)
    await world.stop()
