"""Queues and topics over the native protocol: making, changing and deleting them, and what subscribers of topics get."""

from dataclasses import fields
from typing import Any

import pytest

from penstock.model.settings import QueueSettings, TopicSettings
from tests.broker.stores import HeldStore
from tests.protocols.native.peers import CARRIERS, World

#: Every setting with another value than its default.
QUEUE_SETTINGS: dict[str, Any] = {
    "retry_limit": 3,
    "heartbeat_timeout": 20.0,
    "retry_delay": 1.5,
    "retry_backoff": 2.0,
    "retry_delay_max": 60.0,
    "dead_letter": "graves",
    "max_length": 10,
    "max_bytes": 1000,
    "overflow": "drop-oldest",
    "ttl": 30.0,
    "dedup_window": 5.0,
    "paused": True,
}
TOPIC_SETTINGS: dict[str, Any] = {
    "retain_age": 60.0,
    "retain_bytes": 1000,
    "retain_count": 5,
    "retry_delay": 2.0,
    "max_failures": 3,
    "heartbeat_timeout": 20.0,
    "subscriber_expiry": 60.0,
    "subscriber_max_bytes": 1000,
    "ttl": 30.0,
    "dedup_window": 5.0,
    "paused": True,
}


def test_every_setting_is_tried() -> None:
    """A new setting needs a value here."""
    assert list(QUEUE_SETTINGS) == [field.name for field in fields(QueueSettings)]
    assert list(TOPIC_SETTINGS) == [field.name for field in fields(TopicSettings)]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("verb", ["create", "alter"])
@pytest.mark.parametrize(("where", "settings"), [("queue", QUEUE_SETTINGS), ("topic", TOPIC_SETTINGS)])
async def test_settings_are_made_and_changed(
    world: World, carrier: str, verb: str, where: str, settings: dict[str, Any]
) -> None:
    """All of them at once, read back by `status`."""
    peer = world.native(carrier)
    if verb == "alter":
        await peer.ask("create", label=1, **{where: "a"})
    assert await peer.ask(verb, label=2, settings=settings, **{where: "a"}) == {"type": "ok", "label": 2}
    status = (await peer.ask("status", label=3, **{where: "a"}))["status"]
    assert status["settings"] == settings


async def test_creating_what_exists_changes_nothing(world: World) -> None:
    """It is a success (W), unless it is to be exclusive (S)."""
    peer = world.native()
    await peer.say("create", queue="a", tags=["y", "x"], settings={"max_length": 5})
    assert (await peer.ask("create", queue="a", tags=["x", "y", "x"], settings={"max_length": 9}, label=1))[
        "type"
    ] == "ok"
    status = await peer.ask("status", queue="a", tags=["x", "y"])
    assert status["status"]["settings"]["max_length"] == 5
    assert await peer.refused("create", queue="a", tags=["x", "y"], exclusive=True) == ("ObjectAlreadyExists", "queue")
    assert (await peer.ask("create", queue="a", exclusive=True, label=2))["type"] == "ok", "the untagged one is another"
    await peer.say("create", topic="a")
    assert await peer.refused("create", topic="a", exclusive=True) == ("ObjectAlreadyExists", "topic")


@pytest.mark.parametrize("request_name", ["create", "alter", "purge", "delete"])
async def test_what_changes_a_queue_is_confirmed_when_it_is_on_disk(
    held_world: World, store: HeldStore, request_name: str
) -> None:
    """An `ok` is a promise here."""
    peer = held_world.native()
    held_world.set_queue("a")
    await held_world.idle()
    store.hold()
    settings = {"settings": {"max_length": 5}} if request_name in {"create", "alter"} else {}
    await peer.say(request_name, queue="b" if request_name == "create" else "a", label=1, **settings)
    assert peer.answers == []
    store.let_go()
    await peer.until(lambda: peer.answers)
    assert peer.only()["type"] == "ok"


async def test_purge_and_delete_say_how_many_messages_went(world: World) -> None:
    """Purge drops what waits, delete what is held too."""
    peer = world.native()
    await peer.post("a", "1", "2", "3")
    await peer.ask("fetch", queue="a")
    assert await peer.ask("purge", queue="a", label=1) == {"type": "ok", "label": 1, "count": 2}
    assert await peer.ask("delete", queue="a", label=2) == {"type": "ok", "label": 2, "count": 1}
    assert await peer.refused("status", queue="a") == ("NoObject", "queue")


async def test_a_paused_queue_hands_nothing_out_until_it_goes_on(world: World) -> None:
    """Whoever waits gets it then."""
    peer = world.native()
    await peer.say("create", queue="a", settings={"paused": True})
    await peer.post("a", "x")
    await peer.say("fetch", queue="a", block_timeout=60)
    assert peer.answers == []
    await peer.say("alter", queue="a", settings={"paused": False})
    assert peer.bodies() == ["x"]


async def test_the_status_of_a_queue_tells_what_is_in_it(world: World) -> None:
    """Counts, totals and settings; `penstock` and HTTP tell the same."""
    peer = world.native()
    await peer.post("a", "1", "2", "3")
    await peer.post("a", "later", delay=60)
    await peer.ask("fetch", queue="a")
    await peer.ask("pop", queue="a")
    await world.wait(5)
    status = (await peer.ask("status", queue="a", label=1))["status"]
    totals = status.pop("totals")
    assert totals["published"] == 4
    assert totals["finished"] == 1
    assert status.pop("settings")["retry_limit"] == 5
    assert status == {
        "queue": "a", "tags": [], "ready": 1, "assigned": 1, "delayed": 1, "dead_letters": 0, "consumers": 0,
        "publishers": 1, "bytes": 7, "oldest_age_seconds": 5.0,
    }  # fmt: skip


# What a post may say.


async def test_a_key_replaces_what_waits(world: World) -> None:
    """Willow's updatable message: the publisher of the old one gets `drop`."""
    peer = world.native()
    await peer.post("a", "old", key="k", label=1, notify=["drop"])
    await peer.post("a", "new", key="k")
    assert [answer["type"] for answer in peer.take_all()] == ["notice"]
    assert (await peer.ask("pop", queue="a"))["body"] == "new"


async def test_a_dedup_id_is_answered_as_the_first_time(world: World) -> None:
    """The second post has the sequence of the first, and is not stored."""
    peer = world.native()
    first = await peer.ask("post", queue="a", message="x", dedup_id="d", label=1)
    second = await peer.ask("post", queue="a", message="x", dedup_id="d", label=2)
    assert first["sequence"] == second["sequence"]
    assert world.length("a") == 1


async def test_a_group_goes_to_one_at_a_time(world: World) -> None:
    """The second of a group waits for the first, whoever asks."""
    alice, bob = world.native(), world.native()
    await alice.post("a", "1", "2", group="g")
    first = await alice.ask("fetch", queue="a")
    assert (await bob.ask("fetch", queue="a"))["type"] == "nomessage"
    await alice.say("finish", sequence=first["sequence"])
    assert (await bob.ask("fetch", queue="a"))["body"] == "2"


async def test_a_higher_priority_goes_first(world: World) -> None:
    """Then the older one."""
    peer = world.native()
    for body, priority in (("low", 1), ("default", None), ("high", 2**32 - 1)):
        await peer.post("a", body, **({} if priority is None else {"priority": priority}))
    assert [(await peer.ask("pop", queue="a"))["body"] for _ in range(3)] == ["high", "default", "low"]


async def test_ids_are_small_and_used_again(world: World) -> None:
    """As W has it: unique among what its queue's workers have not settled."""
    peer = world.native()
    await peer.post("a", *"abc")
    held = [await peer.ask("fetch", queue="a") for _ in range(3)]
    assert sorted(message["id"] for message in held) == [1, 2, 3]
    await peer.say("finish", sequence=held[1]["sequence"])
    await peer.post("a", "d")
    assert (await peer.ask("fetch", queue="a"))["id"] == held[1]["id"]


async def test_without_auto_create_a_post_to_nothing_is_refused() -> None:
    """`NoObject`; so for topics."""
    world = World()
    world.runtime.engine.channels.auto_create = False
    await world.start()
    peer = world.native()
    assert await peer.refused("post", queue="a", message="x") == ("NoObject", "queue")
    assert await peer.refused("post", topic="t", message="x") == ("NoObject", "topic")
    await world.stop()


# Topics.


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_every_subscriber_of_a_topic_gets_every_message(world: World, carrier: str) -> None:
    """In order, with the name of the topic in place of the queue's."""
    publisher, *readers = (world.native(carrier) for _ in range(3))
    for reader in readers:
        assert (await reader.ask("subscribe", topic="news.eu", label=1))["type"] == "ok"
    for body in ("1", "2"):
        await publisher.say("post", topic="news.eu", message=body)
    for reader in readers:
        first, second = reader.messages()
        assert (first["body"], second["body"], first["topic"]) == ("1", "2", "news.eu")
        assert "queue" not in first
        assert (await reader.ask("finish", sequence=first["sequence"], label=2))["type"] == "ok"


async def test_a_pattern_takes_topics_that_are_and_that_come(world: World) -> None:
    """`*` is one word, `#` the rest."""
    peer = world.native()
    await peer.say("create", topic="news.eu")
    await peer.say("subscribe", topic="news.*", label=1)
    await peer.say("subscribe", topic="news.#", label=2)
    peer.take_all()
    for topic in ("news.eu", "news.us", "news.us.east", "old"):
        await peer.say("post", topic=topic, message=topic)
    found = sorted((message["label"], message["body"]) for message in peer.messages())
    assert found == [(1, "news.eu"), (1, "news.us"), (2, "news.eu"), (2, "news.us"), (2, "news.us.east")]


async def test_overlapping_subscriptions_deliver_twice_and_are_finished_one_by_one(world: World) -> None:
    """Each `finish` of the sequence settles one of the two."""
    peer = world.native()
    await peer.say("subscribe", topic="t")
    await peer.say("subscribe", topic="#", label=2)
    peer.take_all()
    await peer.say("post", topic="t", message="x", label=7, notify=["finish"])
    first, second = peer.messages()
    assert first["sequence"] == second["sequence"]
    assert (await peer.ask("finish", sequence=first["sequence"], label=1)) == {"type": "ok", "label": 1}
    await peer.say("finish", sequence=first["sequence"], label=2)
    assert [answer["type"] for answer in peer.take_all()] == ["ok", "notice"]
    assert await peer.refused("finish", sequence=first["sequence"]) == ("NoObject", "sequence")


async def test_a_subscriber_may_begin_earlier_than_the_end(world: World) -> None:
    """At `from_seq`, as far as the topic retains."""
    peer = world.native()
    await peer.say("create", topic="t", settings={"retain_count": 2})
    sequences = [(await peer.ask("post", topic="t", message=body, label=1))["sequence"] for body in "abc"]
    await peer.say("subscribe", topic="t", from_seq=0)
    assert peer.bodies() == ["b", "c"]
    await peer.say("subscribe", topic="t", from_seq=sequences[2], label=2)
    assert [answer["body"] for answer in peer.take_all()[1:]] == ["c"]


async def test_a_durable_subscriber_gets_what_it_missed(world: World) -> None:
    """Recognised by its name, over whatever connection it comes back."""
    peer, publisher = world.native(), world.native()
    await peer.ask("subscribe", topic="t", durable="d", label=1)
    await peer.vanish()
    for body in "ab":
        await publisher.say("post", topic="t", message=body)
    again = world.native("binary")
    await again.say("subscribe", topic="t", durable="d", label=1)
    ok, *messages = again.take_all()
    assert ok["type"] == "ok"
    assert [message["body"] for message in messages] == ["a", "b"]


async def test_who_subscribes_under_a_name_in_use_takes_over(world: World) -> None:
    """The earlier subscription ends by an error with its label; its connection goes on."""
    first, second = world.native(), world.native()
    await first.ask("subscribe", topic="t", durable="d", label=4)
    await second.ask("subscribe", topic="t", durable="d", label=5)
    error = first.only()
    assert (error["type"], error["label"], error["key"]) == ("error", 4, "durable")
    assert (await first.ask("ping", label=1))["type"] == "pong"
    await first.say("post", topic="t", message="x")
    assert (first.answers, second.bodies()) == ([], ["x"])


async def test_unsubscribe_with_the_name_is_for_good(world: World) -> None:
    """Else a durable subscriber is only away."""
    peer = world.native()
    await peer.ask("subscribe", topic="t", durable="d", label=1)
    assert (await peer.ask("unsubscribe", subscription=1, label=2))["type"] == "ok"
    await peer.say("post", topic="t", message="missed")
    await peer.ask_for_message("subscribe", topic="t", durable="d", label=1)
    assert (await peer.ask("unsubscribe", topic="t", durable="d", label=3))["type"] == "ok"
    await peer.say("post", topic="t", message="nobody's")
    assert (await peer.ask("subscribe", topic="t", durable="d", label=1))["type"] == "ok"
    assert (await peer.ask("status", topic="t"))["status"]["waiting"] == 0


async def test_a_durable_subscriber_of_many_topics_goes_by_its_name_alone(world: World) -> None:
    """Without a topic `unsubscribe` means every subscription of that name."""
    peer = world.native()
    for label, topic in enumerate(("a", "b.*")):
        await peer.ask("subscribe", topic=topic, durable="d", label=label)
    assert (await peer.ask("unsubscribe", durable="d", label=9))["type"] == "ok"
    assert not world.runtime.engine.subscriptions.durables


async def test_a_subscriber_that_fails_too_often_is_told_and_removed(world: World) -> None:
    """After `max_failures` its subscription ends by an error with its label."""
    peer = world.native()
    await peer.say("create", topic="t", settings={"max_failures": 2, "retry_delay": 0.0})
    await peer.ask("subscribe", topic="t", label=3)
    await peer.say("post", topic="t", message="x")
    await peer.say("fail", sequence=peer.only()["sequence"])
    await peer.say("fail", sequence=peer.only()["sequence"])
    error = peer.only()
    assert (error["type"], error["label"], error["code"], error["key"]) == ("error", 3, "NoObject", "topic")
    assert (await peer.ask("subscribe", topic="t", label=3))["type"] == "ok", "its label is free again"


async def test_a_durable_subscriber_is_promised_before_its_first_message(held_world: World, store: HeldStore) -> None:
    """`ok` waits for the disk, and messages wait for `ok`."""
    peer = held_world.native()
    await held_world.idle()
    store.hold()
    await peer.say("subscribe", topic="t", durable="d", label=1)
    await peer.say("post", topic="t", message="x")
    peer.session.hold_back()
    peer.session.go_on()
    await held_world.quiet()
    assert peer.answers == []
    store.let_go()
    await peer.until(lambda: len(peer.answers) == 2)
    assert [answer["type"] for answer in peer.take_all()] == ["ok", "message"]
