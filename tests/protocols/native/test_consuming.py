"""Taking messages: pops, fetches and subscriptions, what they wait for, and how far an assignment has gone before."""

import pytest

from penstock.model.limits import Limits
from tests.broker.stores import HeldStore, SteppedStore
from tests.protocols.native.peers import CARRIERS, World


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_popped_message_says_all_of_itself(world: World, carrier: str) -> None:
    """What was posted arrives whole over every carrier, and is finished."""
    peer = world.native(carrier)
    world.set_queue("a", "fast", "eu")
    await peer.post("a", "grüße", tags=["fast", "eu"], priority=7, headers={"colour": "red"})
    message = await peer.ask("pop", queue="a", label=3)
    published_at = message.pop("published_at")
    assert published_at == world.clock.seconds
    assert message == {
        "type": "message", "label": 3, "shard": 0, "sequence": message["sequence"], "body": "grüße", "finished": True,
        "queue": "a", "tags": ["eu", "fast"], "id": 1, "attempt": 1, "priority": 7, "headers": {"colour": "red"},
    }  # fmt: skip
    assert (await peer.ask("pop", queue="a", label=4)) == {"type": "nomessage", "label": 4}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("body", [b"", b"text", "grüße".encode(), b"\xff\x00", bytes(range(256)), b'"\\\n\0'])
async def test_bodies_arrive_as_they_were(world: World, carrier: str, body: bytes) -> None:
    """Text when it is valid UTF-8, else an array of byte values; either is accepted."""
    peer = world.native(carrier)
    shown = _shown(body)
    for given in (shown, list(body)):
        await peer.say("post", queue="a", message=given)
        message = await peer.ask("pop", queue="a")
        assert message["body"] == shown


def _shown(body: bytes) -> str | list[int]:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return list(body)


async def test_a_fetched_message_is_in_work_until_it_is_settled(world: World) -> None:
    """Nobody else gets it meanwhile."""
    alice, bob = world.native(), world.native()
    await alice.post("a", "x")
    message = await alice.ask("fetch", queue="a", label=1)
    assert (message["finished"], message["body"], message["label"]) == (False, "x", 1)
    assert (await bob.ask("fetch", queue="a"))["type"] == "nomessage"
    await alice.say("finish", queue="a", sequence=message["sequence"], shard=message["shard"])
    assert (world.length("a"), alice.answers) == (0, [])


async def test_without_a_timeout_nobody_waits(world: World) -> None:
    """An empty queue is answered at once, with the label."""
    peer = world.native()
    world.set_queue("a")
    for request in ("pop", "fetch"):
        assert await peer.ask(request, queue="a", label=2) == {"type": "nomessage", "label": 2}


@pytest.mark.parametrize(("request_name", "field"), [("pop", "timeout"), ("fetch", "block_timeout")])
async def test_a_wait_ends_when_its_time_is_over(world: World, request_name: str, field: str) -> None:
    """Not before, and once; what comes later stays in the queue."""
    peer = world.native()
    world.set_queue("a")
    await peer.say(request_name, queue="a", label=1, **{field: 5})
    await world.wait(4)
    assert peer.answers == []
    assert peer.turns_at == world.clock.seconds + 1
    await world.wait(1)
    assert peer.take_all() == [{"type": "nomessage", "label": 1}]
    await peer.post("a", "x")
    assert (peer.answers, world.length("a")) == ([], 1)


@pytest.mark.parametrize(("request_name", "field"), [("pop", "timeout"), ("fetch", "block_timeout")])
async def test_a_wait_ends_with_a_message(world: World, request_name: str, field: str) -> None:
    """Of several that wait each gets one; the others wait on."""
    worker, publisher = world.native(), world.native()
    world.set_queue("a")
    for label in range(3):
        await worker.say(request_name, queue="a", label=label, **{field: 5})
    await publisher.post("a", "x", "y")
    assert [(message["label"], message["body"]) for message in worker.messages()] == [(0, "x"), (1, "y")]
    await world.wait(5)
    assert worker.take_all() == [{"type": "nomessage", "label": 2}]


async def test_who_waits_gets_what_comes_due_retried_or_new(world: World) -> None:
    """A delayed message, one that another gave back, and one of a queue that was made meanwhile."""
    worker, other = world.native(), world.native()
    await other.post("a", "late", delay=10)
    await worker.say("fetch", queue="a", block_timeout=60, label=1)
    await world.wait(10)
    assert worker.bodies() == ["late"]

    await other.post("a", "again")
    held = await other.ask("fetch", queue="a")
    await worker.say("fetch", queue="a", block_timeout=60, label=2)
    await other.say("release", sequence=held["sequence"])
    again = worker.only()
    assert (again["body"], again["redelivered"], again["attempt"]) == ("again", True, 1)

    await worker.say("pop", queue="a", block_timeout=60, timeout=60, label=3)
    await other.post("a", "new", tags=["eu"])
    assert worker.bodies() == ["new"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["none", "eu", "fast", "eu,fast"]),
        ({"tags": []}, ["none"]),
        ({"tags": ["eu"]}, ["eu"]),
        ({"tags": ["fast", "eu"]}, ["eu,fast"]),
        ({"tags": ["eu"], "match": "strict"}, ["eu", "eu,fast"]),
        ({"tags": ["eu", "fast"], "match": "combined"}, ["eu", "fast", "eu,fast"]),
        ({"tags": ["eu", "fast"], "match": "any"}, ["eu", "fast", "eu,fast"]),
    ],
)
@pytest.mark.parametrize("way", ["pop", "fetch", "subscribe"])
async def test_tags_choose_the_queues(world: World, way: str, fields: dict[str, object], expected: list[str]) -> None:
    """All three ways of taking choose alike."""
    publisher, worker = world.native(), world.native()
    for name in ("none", "eu", "fast", "eu,fast"):
        await publisher.post("a", name, tags=[] if name == "none" else name.split(","))
    for _ in range(1 if way == "subscribe" else 5):
        await worker.say(way, queue="a", **fields)
    bodies = [answer["body"] for answer in worker.take_all() if answer["type"] == "message"]
    assert sorted(bodies) == sorted(expected)


@pytest.mark.parametrize("way", ["pop", "fetch", "subscribe"])
async def test_a_selector_chooses_the_messages(world: World, way: str) -> None:
    """Those that it does not want wait for others."""
    publisher, worker = world.native(), world.native()
    for colour in ("red", "blue", "red"):
        await publisher.post("a", colour, headers={"colour": colour})
    for _ in range(1 if way == "subscribe" else 3):
        await worker.say(way, queue="a", selector="colour = 'blue'")
    assert [answer["body"] for answer in worker.take_all() if answer["type"] == "message"] == ["blue"]
    assert world.length("a") == (2 if way == "pop" else 3)


# How far the assignment must have gone.


@pytest.mark.parametrize("level", ["ready", "write", "sync"])
@pytest.mark.parametrize("way", ["fetch", "subscribe"])
async def test_a_message_comes_when_its_assignment_is_persisted_so_far(
    held_world: World, store: HeldStore, way: str, level: str
) -> None:
    """At once, when it is written, or when it is on disk."""
    publisher, worker = held_world.native(), held_world.native()
    await publisher.ask_synced("post", queue="a", message="x")
    store.hold()
    await worker.say(way, queue="a", sync=level)
    assert len(worker.answers) == (level == "ready")
    store.may_write.set()
    if level == "write":
        await worker.until(lambda: worker.answers)
    await held_world.quiet()
    assert len(worker.answers) == (level != "sync")
    store.may_sync.set()
    await worker.until(lambda: worker.answers)
    assert worker.bodies() == ["x"]


@pytest.mark.parametrize("level", ["write", "sync"])
async def test_a_fetch_that_waited_is_answered_after_its_assignment_is_persisted(
    held_world: World, store: HeldStore, level: str
) -> None:
    """Neither before, nor by `nomessage` when its time is over while the disk is waited for."""
    publisher, worker = held_world.native(), held_world.native()
    held_world.set_queue("a")
    await worker.say("fetch", queue="a", sync=level, block_timeout=5)
    store.hold()
    await publisher.post("a", "x")
    await held_world.wait(6)
    assert worker.answers == []
    store.let_go()
    await worker.until(lambda: worker.answers)
    assert worker.bodies() == ["x"]


@pytest.mark.parametrize("waits", [False, True])
async def test_what_was_assigned_and_never_sent_waits_again_without_counting(
    held_world: World, store: HeldStore, *, waits: bool
) -> None:
    """The connection went while the assignment was written: the message did not fail, and is kept for nobody."""
    publisher, worker, other = (held_world.native() for _ in range(3))
    held_world.set_queue("a")
    await worker.ask_synced("resume", resume_timeout=60)
    if not waits:
        await publisher.ask_synced("post", queue="a", message="x")
    store.hold()
    await worker.say("fetch", queue="a", sync="sync", block_timeout=5)
    if waits:
        await publisher.post("a", "x")
    await worker.vanish()
    store.let_go()
    message = await other.ask("fetch", queue="a")
    assert (message["body"], message["attempt"]) == ("x", 1)


# Subscriptions.


async def test_a_subscription_is_sent_what_is_synced_and_no_more() -> None:
    """What is assigned while an earlier assignment is on its way to the disk waits for the commit after that."""
    store = SteppedStore()
    world = World(store)
    await world.start()
    publisher, worker = world.native(), world.native()
    await worker.ask_synced("subscribe", queue="a", sync="sync")
    store.is_stepping = True
    for body in "xy":
        await publisher.post("a", body)
        await world.quiet()
    assert worker.answers == []
    store.steps.release()
    await worker.until(lambda: worker.answers)
    await world.quiet()
    assert worker.bodies() == ["x"]
    store.run()
    await worker.until(lambda: worker.answers)
    assert worker.bodies() == ["y"]
    await world.stop()


async def test_a_durable_subscriber_that_goes_on_elsewhere_is_sent_nothing_more(
    held_world: World, store: HeldStore
) -> None:
    """Not even what was its own, and only waited until that was on disk: the one who goes on has it."""
    publisher, earlier, later = (held_world.native() for _ in range(3))
    wish = {"topic": "t", "durable": "d", "sync": "sync"}
    assert (await earlier.ask_synced("subscribe", **wish))["type"] == "ok"
    store.hold()
    await publisher.say("post", topic="t", message="x")
    later.tell("subscribe", **wish, label=1)
    await held_world.quiet()
    assert earlier.only()["code"] == "NoObject"
    store.let_go()
    await later.until(lambda: len(later.answers) == 2)
    message = later.take_all()[1]
    assert (message["body"], message["attempt"], message["redelivered"]) == ("x", 1, True)
    assert earlier.answers == []


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_subscription_brings_messages_as_they_come(world: World, carrier: str) -> None:
    """With the label of the request, up to the credit, and on as they are finished."""
    publisher, worker = world.native(), world.native(carrier)
    assert await worker.ask("subscribe", queue="a", label=9, credit=2) == {"type": "ok", "label": 9}
    await publisher.post("a", "1", "2", "3")
    first, second = worker.messages()
    assert [first["label"], first["body"], second["body"]] == [9, "1", "2"]
    await worker.say("finish", queue="a", sequence=first["sequence"])
    assert worker.bodies() == ["3"]


async def test_a_subscription_waits_for_its_queue(world: World) -> None:
    """There need not be one yet."""
    peer = world.native()
    await peer.say("subscribe", queue="later")
    await peer.post("later", "x")
    assert peer.bodies() == ["x"]


async def test_subscriptions_of_one_connection_are_told_apart_by_their_labels(world: World) -> None:
    """A label is given once, and free again after `unsubscribe`."""
    peer = world.native()
    await peer.say("subscribe", queue="a", label=1)
    await peer.say("subscribe", queue="b", label=2)
    await peer.say("subscribe", queue="c")
    peer.take_all()
    await peer.post("a", "x")
    await peer.post("b", "y")
    await peer.post("c", "z")
    assert [(message.get("label"), message["body"]) for message in peer.messages()] == [(1, "x"), (2, "y"), (None, "z")]
    assert (await peer.ask("subscribe", queue="d", label=1))["code"] == "ObjectAlreadyExists"
    await peer.say("unsubscribe", subscription=1)
    assert (await peer.ask("subscribe", queue="d", label=1))["type"] == "ok"


async def test_after_unsubscribe_nothing_comes_and_what_was_sent_can_be_finished(world: World) -> None:
    """It stays in the peer's hands, whose work may be half done."""
    peer, other = world.native(), world.native()
    await peer.say("subscribe", queue="a", label=1, credit=1)
    peer.take_all()
    await other.post("a", "x", "y")
    (message,) = peer.messages()
    assert await peer.ask("unsubscribe", subscription=1, label=2) == {"type": "ok", "label": 2}
    assert (await peer.ask("finish", sequence=message["sequence"], label=3))["type"] == "ok"
    assert peer.answers == []
    assert (await other.ask("pop", queue="a"))["body"] == "y"


async def test_a_work_timeout_is_the_lease(world: World) -> None:
    """Without one the queue's `heartbeat_timeout` is; either ends as a failure."""
    peer, other = world.native(), world.native()
    world.set_queue("a", heartbeat_timeout=30)
    await peer.post("a", "x", "y")
    first = await peer.ask("fetch", queue="a", work_timeout=10)
    second = await peer.ask("fetch", queue="a")
    await world.wait(11)
    again = await other.ask("fetch", queue="a")
    assert (again["sequence"], again["attempt"], again["redelivered"]) == (first["sequence"], 2, True)
    await world.wait(20)
    again = await other.ask("fetch", queue="a")
    assert (again["sequence"], again["attempt"]) == (second["sequence"], 2)


async def test_a_peer_that_does_not_read_is_handed_nothing(world: World) -> None:
    """Neither by a subscription nor by a fetch that waits; when it reads again all comes."""
    worker, publisher = world.native(), world.native()
    world.set_queue("b")
    await worker.say("subscribe", queue="a")
    await worker.say("fetch", queue="b", block_timeout=60)
    worker.session.hold_back()
    await worker.say("subscribe", queue="c", label=3)
    worker.take_all()
    for queue in "abc":
        await publisher.post(queue, queue)
    assert worker.answers == []
    worker.session.go_on()
    await world.quiet()
    assert sorted(worker.bodies()) == ["a", "b", "c"]


async def test_notices_wait_for_a_peer_that_does_not_read(world: World) -> None:
    """They come when it reads again, in their order."""
    peer, worker = world.native(), world.native()
    await peer.post("a", "x", label=1, notify=["assign", "finish"])
    peer.session.hold_back()
    message = await worker.ask("fetch", queue="a")
    await worker.say("finish", sequence=message["sequence"])
    assert peer.answers == []
    peer.session.go_on()
    await world.quiet()
    assert peer.notices() == ["assign", "finish"]


async def test_too_many_notices_that_nobody_reads_end_the_connection() -> None:
    """The broker's memory is not where they wait, and none is lost without a word."""
    world = World(limits=Limits(missed_notices_max=10))
    await world.start()
    peer, worker = world.native(), world.native()
    await peer.post("a", *("x" for _ in range(10)), label=1, notify=["finish"])
    peer.session.hold_back()
    for _ in range(10):
        await worker.say("pop", queue="a")
    peer.session.go_on()
    assert peer.last_words()["key"] == "notify"
    await world.stop()


async def test_waits_and_subscriptions_of_one_connection_have_a_limit(world: World) -> None:
    """The thousand and first is refused, by the field that it would be told apart by."""
    peer = world.native()
    world.set_queue("a")
    for label in range(1000):
        peer.tell("fetch", queue="a", block_timeout=60)
        peer.tell("subscribe", queue="b", label=label)
    await world.quiet()
    peer.take_all()
    assert await peer.refused("fetch", queue="a", block_timeout=60) == ("TooLarge", "timeout")
    assert (await peer.ask("subscribe", queue="b", label=1000))["code"] == "TooLarge"
    assert (await peer.ask("fetch", queue="a"))["type"] == "nomessage"
