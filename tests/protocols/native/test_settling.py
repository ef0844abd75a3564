"""Settling: finish, fail, release, reject, keepalive and batches, by whom, how late, and what is told of it."""

from typing import Any

import pytest

from penstock.model.errors import StoreFailed
from penstock.model.records import Kind
from tests.broker.stores import HeldStore
from tests.protocols.native.peers import CARRIERS, Native, World

SETTLEMENTS = ("finish", "fail", "release", "reject")


async def fetched(peer: Native, *bodies: str, queue: str = "a", **fields: object) -> list[int]:
    """Post messages and fetch them; returns their sequences."""
    await peer.post(queue, *bodies)
    return [(await peer.ask("fetch", queue=queue, **fields))["sequence"] for _ in bodies]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("way", SETTLEMENTS)
async def test_a_settlement_with_a_label_is_answered_and_one_without_is_not(
    world: World, carrier: str, way: str
) -> None:
    """By the number alone, or with queue and shard as S has them."""
    peer = world.native(carrier)
    first, second = await fetched(peer, "x", "y")
    assert await peer.ask(way, sequence=first, label=5) == {"type": "ok", "label": 5}
    await peer.say(way, queue="a", sequence=second, shard=0)
    assert peer.answers == []
    assert peer.world.length("a") == (2 if way in {"fail", "release"} else 0)


@pytest.mark.parametrize(
    ("way", "attempt", "where"), [("fail", 2, "a"), ("release", 1, "a"), ("reject", 1, "DLQ.a"), ("finish", 0, "")]
)
async def test_what_becomes_of_a_message(world: World, way: str, attempt: int, where: str) -> None:
    """`fail` counts, `release` does not, `reject` goes to the dead letters, `finish` is the end."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x")
    await peer.say(way, sequence=sequence)
    assert [queue.name for queue in world.runtime.engine.channels.queues.values() if queue.length] == [where] * bool(
        where
    )
    if where:
        again = await peer.ask("fetch", queue=where)
        assert (again["body"], again["attempt"]) == ("x", attempt)


async def test_the_reason_of_a_failure_is_kept(world: World) -> None:
    """What a worker says of the last failure stands in the dead letter, cut where the limit says."""
    peer = world.native()
    world.set_queue("a", retry_limit=1)
    for way in ("fail", "reject"):
        (sequence,) = await fetched(peer, "x")
        await peer.say(way, sequence=sequence, reason="r" * 2000)
        dead = await peer.ask("pop", queue="DLQ.a")
        assert dead["headers"]["death-reason"] == "r" * 1000


@pytest.mark.parametrize("carrier", ["lines", "frames"])
@pytest.mark.parametrize("level", ["ready", "write", "sync"])
async def test_finish_with_response_is_answered_by_a_notice_of_that_stage(
    held_world: World, store: HeldStore, level: str, carrier: str
) -> None:
    """When the settlement is persisted so far, and not before."""
    peer = held_world.native(carrier)
    await peer.ask_synced("post", queue="a", message="x")
    message = await peer.ask("fetch", queue="a")
    await held_world.idle()
    store.hold()
    await peer.say("finish", sequence=message["sequence"], label=3, response=level)
    assert len(peer.answers) == (level == "ready")
    store.may_write.set()
    if level == "write":
        await peer.until(lambda: peer.answers)
    store.may_sync.set()
    await peer.until(lambda: peer.answers)
    assert peer.only() == {"type": "notice", "label": 3, "notice": level}


async def test_finish_with_response_needs_no_label(world: World) -> None:
    """S has the two by themselves."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x")
    assert await peer.ask("finish", sequence=sequence, response="sync") == {"type": "notice", "notice": "sync"}


@pytest.mark.parametrize("fields", [{"label": 1}, {"label": 1, "response": "sync"}])
async def test_a_late_finish_before_anybody_else_has_it_succeeds(world: World, fields: dict[str, Any]) -> None:
    """After its lease has run out a message can be finished still, and the answer says that it was late."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x", work_timeout=5)
    await world.wait(6)
    answer = await peer.ask("finish", sequence=sequence, queue="a", **fields)
    assert answer["late"] is True
    assert world.length("a") == 0


@pytest.mark.parametrize("way", SETTLEMENTS)
async def test_who_has_lost_a_message_to_another_may_not_settle_it(world: World, way: str) -> None:
    """`NotAssigned`, and nothing is changed."""
    slow, quick = world.native(), world.native()
    (sequence,) = await fetched(slow, "x", work_timeout=5)
    await world.wait(6)
    assert (await quick.ask("fetch", queue="a"))["sequence"] == sequence
    assert await slow.refused(way, sequence=sequence, queue="a") == ("NotAssigned", "sequence")
    assert (await quick.ask("finish", sequence=sequence, label=1))["type"] == "ok"


@pytest.mark.parametrize("way", SETTLEMENTS)
async def test_a_message_of_somebody_else_may_not_be_settled(world: World, way: str) -> None:
    """Its number is no secret, and no right."""
    alice, bob = world.native(), world.native()
    (sequence,) = await fetched(alice, "x")
    assert await bob.refused(way, sequence=sequence, queue="a") == ("NotAssigned", "sequence")
    assert await bob.refused(way, sequence=sequence) == ("NoObject", "sequence")
    assert await alice.refused(way, sequence=sequence, queue="b") == ("NoObject", "queue")


@pytest.mark.parametrize("way", SETTLEMENTS)
async def test_what_is_settled_is_unknown(world: World, way: str) -> None:
    """The second settlement finds nothing."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x")
    await peer.say("finish", sequence=sequence)
    assert await peer.refused(way, sequence=sequence, queue="a") == ("NoObject", "sequence")
    assert await peer.refused(way, sequence=sequence) == ("NoObject", "sequence")


async def test_keepalive_starts_a_lease_anew(world: World) -> None:
    """Of one message, or of all that the peer holds; the answer says of how many."""
    peer = world.native()
    sequences = await fetched(peer, "x", "y", work_timeout=10)
    await world.wait(6)
    assert await peer.ask("keepalive", sequence=sequences[0], label=1) == {"type": "ok", "label": 1, "count": 1}
    await world.wait(6)
    assert (await peer.ask("fetch", queue="a"))["sequence"] == sequences[1], "the other ran out"
    assert await peer.ask("keepalive", label=2) == {"type": "ok", "label": 2, "count": 2}
    await world.wait(9)
    assert world.runtime.engine.channels.by_name["a"][0].totals.retried == 1


async def test_messages_that_were_lost_are_forgotten_by_the_session(world: World) -> None:
    """Whoever lets thousands of leases run out does not fill the memory with what it once held."""
    peer = world.native()
    world.set_queue("a", retry_limit=1)
    await peer.post("a", *(str(number) for number in range(5000)))
    await peer.say("subscribe", queue="a", credit=500, work_timeout=5)
    for _ in range(9):
        await world.wait(6)
    assert len(peer.messages()) == 5000
    held = peer.session._peer.held.table  # what a session keeps cannot be seen otherwise
    assert len(held) < 2200


# Batches.


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_batch_posts_and_settles_together(world: World, carrier: str) -> None:
    """Each request with a label is answered, then the batch, with how many there were."""
    peer = world.native(carrier)
    finished, failed = await fetched(peer, "x", "y")
    await peer.say(
        "batch",
        label=9,
        requests=[
            {"type": "post", "queue": "b", "message": "z", "label": 1},
            {"type": "post", "topic": "t", "message": "z"},
            {"type": "finish", "sequence": finished, "label": 2},
            {"type": "fail", "sequence": failed, "reason": "no"},
        ],
    )
    posted, settled, all_of_it = peer.take_all()
    assert (posted["label"], posted["sequence"] > failed) == (1, True)
    assert settled == {"type": "ok", "label": 2}
    assert all_of_it == {"type": "ok", "label": 9, "count": 4}
    assert (world.length("a"), world.length("b")) == (1, 1)
    assert await peer.refused("finish", sequence=failed) == ("NoObject", "sequence")


async def test_what_is_asked_for_in_a_batch_is_answered_as_alone(world: World) -> None:
    """A finish with `response` by its notice, a post with `notify` by its notices; the batch without a label by nothing."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x")
    await peer.say(
        "batch",
        requests=[
            {"type": "finish", "sequence": sequence, "label": 1, "response": "sync"},
            {"type": "post", "queue": "b", "message": "y", "label": 2, "notify": ["sync"]},
            {"type": "post", "queue": "b", "message": "z"},
        ],
    )
    assert sorted((answer["label"], answer["notice"]) for answer in peer.take_all()) == [(1, "sync"), (2, "sync")]


async def test_a_batch_is_one_record_of_the_log(held_world: World, store: HeldStore) -> None:
    """All of it is written at once, so that a crash leaves all or nothing."""
    peer, other = held_world.native(), held_world.native()
    await peer.ask_synced("post", queue="a", message="x")
    message = await peer.ask("fetch", queue="a")
    await held_world.idle()
    store.hold()
    requests = [{"type": "post", "queue": "a", "message": "y"}] * 10
    await peer.say("batch", requests=[*requests, {"type": "finish", "sequence": message["sequence"]}])
    await other.post("a", "z")
    before = len(store.written)
    store.may_write.set()
    await peer.until(lambda: len(store.written) > before)
    assert [record[0] for record in store.written[before:]] == [Kind.FINISH] + [Kind.PUBLISH] * 10


@pytest.mark.parametrize(
    ("wrong", "code", "key"),
    [
        ({"type": "finish", "sequence": 10**6}, "NoObject", "requests[1].sequence"),
        ({"type": "post", "queue": "full", "message": "x"}, "QueueFull", None),
        ({"type": "post", "queue": "", "message": "x"}, "BadRequest", "requests[1].queue"),
        ({"type": "post", "queue": "b", "message": "x", "notify": ["ready"]}, "BadRequest", "requests[1].label"),
        ({"type": "post", "queue": "b", "message": "x", "label": 2**64}, "BadRequest", "requests[1].label"),
        ({"type": "finish", "sequence": "first"}, "NotAssigned", "sequence"),
    ],
)
async def test_a_batch_of_which_one_is_refused_does_nothing(
    world: World, wrong: dict[str, Any], code: str, key: str | None
) -> None:
    """The error names the request; nothing of the others is done."""
    peer = world.native()
    world.set_queue("full", max_length=1)
    await peer.post("full", "x")
    (sequence,) = await fetched(peer, "x")
    if wrong.get("sequence") == "first":
        wrong = {**wrong, "sequence": sequence}
    requests = [{"type": "post", "queue": "b", "message": "y"}, wrong, {"type": "finish", "sequence": sequence}]
    found_code, found_key = await peer.refused("batch", requests=requests)
    assert (found_code, found_key if key else None) == (code, key)
    assert (world.length("a"), world.length("b")) == (1, 0)
    assert (await peer.ask("finish", sequence=sequence, label=1))["type"] == "ok"


async def test_a_batch_too_large_is_refused(world: World) -> None:
    """As every transaction is, and before what is in it costs anything."""
    peer = world.native()
    requests = [{"type": "post", "queue": "", "message": ""}] * 10_001
    assert (await peer.refused("batch", requests=requests))[0] == "TooLarge"


# The store.


async def test_a_store_that_fails_ends_the_connection_with_a_word(world: World) -> None:
    """What was not confirmed by then never is."""
    peer = world.native()
    await peer.post("a", "x")
    world.runtime.fail(StoreFailed("the disk is on fire", key="store"))
    last = peer.last_words()
    assert (last["code"], last["key"]) == ("Unavailable", "store")


async def test_a_post_to_a_full_disk_is_refused_and_a_finish_is_not(world: World) -> None:
    """Consumers go on draining."""
    peer = world.native()
    (sequence,) = await fetched(peer, "x")
    world.runtime.has_room = False
    assert await peer.refused("post", queue="a", message="y") == ("Unavailable", "disk")
    world.runtime.has_room = False
    assert (await peer.ask("finish", sequence=sequence, label=1))["type"] == "ok"


async def test_large_posts_hold_their_publisher_back(world: World) -> None:
    """The bytes of bodies count as much as the number of records, alone and in a batch."""
    peer = world.native()
    body = "x" * (9 * 2**20)
    for request in (
        {"type": "post", "queue": "a", "message": body},
        {"type": "batch", "requests": [{"type": "post", "queue": "a", "message": body}]},
    ):
        peer.tell(str(request["type"]), **{name: value for name, value in request.items() if name != "type"})
        assert world.runtime.is_behind()
        await world.quiet()
        assert not world.runtime.is_behind()
