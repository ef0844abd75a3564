"""Durable subscribers over STOMP: how they are named, recognised, detached, taken over and ended for good."""

from pathlib import Path

import pytest

from penstock.store.journal.journal import Journal
from tests.protocols.stomp.peers import Peer, World, frame

#: What makes a SUBSCRIBE durable, with the headers of CONNECT that go with it, and the name that comes of it.
SPELLINGS = [
    pytest.param((), ("durable:true", "auto-delete:false"), "mine", id="durable"),
    pytest.param((), ("persistent:true",), "mine", id="persistent"),
    pytest.param(("client-id:c",), ("activemq.subscriptionName:n",), "c/n", id="activemq.subscriptionName"),
    pytest.param(("client-id:c",), ("activemq.subcriptionName:n",), "c/n", id="activemq.subcriptionName"),
    pytest.param(("client-id:c",), ("durable-subscription-name:n",), "c/n", id="durable-subscription-name"),
    pytest.param(("client-id:c",), ("durable-subscriber-name:n",), "c/n", id="durable-subscriber-name"),
]
DURABLE = pytest.mark.parametrize(("connect", "lines", "name"), SPELLINGS)


async def subscribed(world: World, connect: tuple[str, ...], lines: tuple[str, ...], ack: str = "auto") -> Peer:
    """Return somebody new who has subscribed to the topic `t` under the id `mine`."""
    peer = world.peer("1.2", *connect)
    await peer.take_from("/topic/t", *lines, ident="mine", ack=ack)
    return peer


def names(world: World) -> list[str]:
    """Return the names of the durable subscribers that there are."""
    return [name for name, _ in world.runtime.engine.subscriptions.durables]


@DURABLE
async def test_after_losing_its_connection_it_gets_all_that_it_missed(
    world: World, connect: tuple[str, ...], lines: tuple[str, ...], name: str
) -> None:
    """In order, and what it had not acknowledged first."""
    peer, publisher = await subscribed(world, connect, lines, ack="client-individual"), world.peer()
    assert names(world) == [name]
    await publisher.publish("/topic/t", "1", "2")
    first, second = peer.messages()
    await peer.say("ACK", f"id:{first.headers['ack']}")
    await peer.vanish()
    await publisher.publish("/topic/t", "3", "4")
    again = await subscribed(world, connect, lines)
    messages = again.messages()
    assert [one.body for one in messages] == [b"2", b"3", b"4"]
    assert [one.headers["redelivered"] for one in messages] == ["true", "false", "false"]
    assert messages[0].headers["message-id"] == second.headers["message-id"]


@DURABLE
async def test_after_a_restart_of_the_broker_it_gets_all_that_it_missed(
    tmp_path: Path, connect: tuple[str, ...], lines: tuple[str, ...], name: str
) -> None:
    """It is in the journal, with how far it has come."""
    world = World(Journal(tmp_path))
    await world.start()
    peer = await subscribed(world, connect, (*lines, "receipt:subscribed"), ack="client-individual")
    await peer.receipt("subscribed")
    await peer.say("SEND", "destination:/topic/t", "receipt:first", body=b"1")
    await peer.receipt("first")
    await peer.say("ACK", f"id:{peer.take().headers['ack']}", "receipt:acked")
    await peer.receipt("acked")
    await peer.vanish()
    publisher = world.peer()
    await publisher.say("SEND", "destination:/topic/t", "receipt:second", body=b"2")
    await publisher.receipt("second")
    await world.stop()

    world = World(Journal(tmp_path))
    await world.start()
    again = await subscribed(world, connect, lines)
    await again.say("SEND", "destination:/topic/t", "receipt:third", body=b"3")
    await again.receipt("third")
    assert [one.body for one in again.frames if one.command == "MESSAGE"] == [b"2", b"3"]
    await world.stop()


@DURABLE
async def test_a_plain_unsubscribe_detaches(
    world: World, connect: tuple[str, ...], lines: tuple[str, ...], name: str
) -> None:
    """Messages go on waiting for it."""
    peer = await subscribed(world, connect, lines)
    await peer.say("UNSUBSCRIBE", "id:mine")
    await peer.publish("/topic/t", "x")
    assert (peer.frames, names(world)) == ([], [name])
    again = await subscribed(world, connect, lines)
    assert again.bodies() == ["x"]


@DURABLE
async def test_an_unsubscribe_that_speaks_of_durability_is_for_good(
    world: World, connect: tuple[str, ...], lines: tuple[str, ...], name: str
) -> None:
    """What had waited for it is settled, and who comes again begins at the end."""
    peer = await subscribed(world, connect, lines)
    await peer.say("UNSUBSCRIBE", "id:mine", *lines)
    assert (names(world), peer.is_open) == ([], True)
    await peer.publish("/topic/t", "x")
    again = await subscribed(world, connect, lines)
    assert again.frames == []


@DURABLE
async def test_one_that_is_away_can_be_ended_too(
    world: World, connect: tuple[str, ...], lines: tuple[str, ...], name: str
) -> None:
    """By whoever would be recognised as it, with the topic or without."""
    for destination in (("destination:/topic/t",), ()):
        peer = await subscribed(world, connect, lines)
        await peer.vanish()
        other = world.peer("1.2", *connect)
        await other.say("UNSUBSCRIBE", "id:mine", *lines, *destination)
        assert (names(world), other.is_open) == ([], True)


async def test_one_may_be_ended_by_its_name_alone(world: World) -> None:
    """ActiveMQ's programs name the subscription and no id; others of the connection stay."""
    peer = world.peer("1.2", "client-id:c")
    await peer.take_from("/queue/a", ident="plain", ack="auto")
    await peer.take_from("/topic/t", "activemq.subscriptionName:other", ident="other", ack="auto")
    await peer.say("UNSUBSCRIBE", "id:other")
    await peer.take_from("/topic/t", "activemq.subscriptionName:n", ident="mine", ack="auto")
    await peer.say("UNSUBSCRIBE", "activemq.subscriptionName:n")
    assert (names(world), peer.is_open) == (["c/other"], True)
    await peer.publish("/topic/t", "x")
    assert peer.frames == []
    await peer.publish("/queue/a", "x")
    assert peer.bodies() == ["x"]
    await peer.take_from("/topic/t", ident="mine", ack="auto")
    assert peer.is_open, "its id is free again"


async def test_one_name_on_two_topics_is_two_subscribers(world: World) -> None:
    """With a destination only that one is ended, without one both are."""
    peer = world.peer()
    for number, topic in enumerate("tu"):
        await peer.take_from(f"/topic/{topic}", "durable-subscription-name:n", ident=str(number))
    await peer.vanish()
    other = world.peer()
    for _ in range(2):
        await other.take_from("/topic/t", "durable-subscription-name:n", ident="0")
        await other.say("UNSUBSCRIBE", "id:0")
        await other.say("UNSUBSCRIBE", "durable-subscription-name:n", "destination:/topic/t")
        assert list(world.runtime.engine.subscriptions.durables) == [("n", "u")]
    await other.take_from("/topic/t", "durable-subscription-name:n", ident="0")
    await other.say("UNSUBSCRIBE", "id:0")
    await other.say("UNSUBSCRIBE", "durable-subscription-name:n")
    assert (names(world), other.is_open) == ([], True)


async def test_clients_with_equal_ids_of_subscriptions_do_not_meet(world: World) -> None:
    """The client-id is a part of the name, whatever letters it has."""
    for client in ("a", "b", "a%", "a/mine", ""):
        await subscribed(world, (f"client-id:{client}",) if client else (), ("durable:true",))
    assert len(set(names(world))) == 5
    assert all(peer.is_open for peer in world.peers)


async def test_who_comes_again_takes_over_and_the_earlier_is_told(world: World) -> None:
    """What the earlier holds waits again, uncounted and in order; its connection is closed."""
    earlier = await subscribed(world, (), ("durable:true",), ack="client-individual")
    await earlier.publish("/topic/t", "1", "2")
    assert earlier.bodies() == ["1", "2"]
    later = await subscribed(world, (), ("durable:true",))
    assert "another connection" in earlier.error().body.decode()
    messages = later.messages()
    assert [one.body for one in messages] == [b"1", b"2"]
    assert {one.headers["delivery-count"] for one in messages} == {"1"}


async def test_one_connection_does_not_take_over_from_itself(world: World) -> None:
    """Two subscriptions of one durable subscriber in one connection are a mistake."""
    peer = await subscribed(world, (), ("durable-subscription-name:n",))
    await peer.take_from("/topic/t", "durable-subscription-name:n", ident="2")
    assert "already" in peer.error().body.decode()


async def test_a_durable_subscriber_needs_a_name_that_stays(world: World) -> None:
    """Version 1.0 may subscribe without an id, but then nobody would recognise it."""
    peer = world.peer("1.0")
    await peer.say("SUBSCRIBE", "destination:/topic/t", "durable:true")
    assert "id" in peer.error().body.decode()


async def test_a_durable_queue_needs_no_name(world: World) -> None:
    """RabbitMQ's `durable:true` on a queue asks for what every queue is."""
    peer = world.peer()
    await peer.take_from("/queue/a", "durable:true", "auto-delete:false", ack="auto")
    await peer.publish("/queue/a", "x")
    assert peer.bodies() == ["x"]
    assert names(world) == []
    await peer.say("UNSUBSCRIBE", "id:1", "durable:true", "auto-delete:false")
    assert peer.is_open
    await peer.publish("/queue/a", "y")
    assert (peer.frames, world.length("a")) == ([], 1)


async def test_a_durable_pattern_gets_what_it_missed_of_each_topic(world: World) -> None:
    """Of topics that were made while it was away, too."""
    peer = world.peer()
    await peer.take_from("/topic/t.*", "durable:true", ident="mine", ack="auto")
    await peer.publish("/topic/t.a", "1")
    await peer.vanish()
    publisher = world.peer()
    await publisher.publish("/topic/t.a", "2")
    await publisher.publish("/topic/t.b", "3")
    again = world.peer()
    await again.take_from("/topic/t.*", "durable:true", ident="mine", ack="auto")
    assert sorted(again.bodies()) == ["2", "3"]
    await again.say("UNSUBSCRIBE", "id:mine", "durable:true")
    await publisher.publish("/topic/t.c", "4")
    assert (again.frames, names(world)) == ([], [])


async def test_the_receipt_of_a_durable_subscription_comes_before_its_backlog(world: World) -> None:
    """Although the receipt waits for the disk and the messages do not."""
    peer = await subscribed(world, (), ("durable:true",))
    await peer.vanish()
    publisher = world.peer()
    await publisher.publish("/topic/t", "x")
    again = world.peer()
    again.session.receive(frame("SUBSCRIBE", "id:mine", "destination:/topic/t", "durable:true", "receipt:r"))
    await world.quiet()
    assert [one.command for one in again.frames] == ["RECEIPT", "MESSAGE"]


async def test_one_that_is_away_too_long_is_removed(world: World) -> None:
    """Where the topic says so."""
    world.set_topic("t", subscriber_expiry=60.0)
    peer = await subscribed(world, (), ("durable:true",))
    await world.wait(3600.0)
    assert names(world) == ["mine"]
    await peer.vanish()
    await world.wait(59.0)
    assert names(world) == ["mine"]
    await world.wait(2.0)
    assert names(world) == []


async def test_without_asking_nobody_is_durable(world: World) -> None:
    """A client-id alone does not make it so."""
    peer = await subscribed(world, ("client-id:c",), ())
    assert (names(world), peer.is_open) == ([], True)


# `--durable-topics`: every subscriber whose connection has a client-id.


async def test_by_rule_each_subscriber_with_a_client_id_is_durable(durable_world: World) -> None:
    """Without asking; one without a client-id is not."""
    world = durable_world
    named = await subscribed(world, ("client-id:c",), ())
    unnamed = await subscribed(world, (), ())
    assert names(world) == ["c/mine"]
    for peer in (named, unnamed):
        await peer.vanish()
    publisher = world.peer()
    await publisher.publish("/topic/t", "missed")
    assert (await subscribed(world, ("client-id:c",), ())).bodies() == ["missed"]
    assert (await subscribed(world, (), ())).bodies() == []


async def test_by_rule_version_1_0_is_known_by_its_destination(durable_world: World) -> None:
    """It subscribes without an id."""
    peer = durable_world.peer("1.0", "client-id:c")
    await peer.say("SUBSCRIBE", "destination:/topic/t")
    await peer.vanish()
    await durable_world.peer().publish("/topic/t", "missed")
    again = durable_world.peer("1.0", "client-id:c")
    await again.say("SUBSCRIBE", "destination:/topic/t")
    assert again.bodies() == ["missed"]


async def test_by_rule_a_plain_unsubscribe_is_for_good(durable_world: World) -> None:
    """A program that does not know that it is durable says so when it no longer wants anything."""
    peer = await subscribed(durable_world, ("client-id:c",), ())
    await peer.say("UNSUBSCRIBE", "id:mine")
    assert (names(durable_world), peer.is_open) == ([], True)


async def test_by_rule_queues_and_what_is_only_looked_at_stay_as_they_are(durable_world: World) -> None:
    """A queue keeps its messages anyway, and a browser holds nothing."""
    peer = durable_world.peer("1.2", "client-id:c")
    await peer.take_from("/queue/a", ident="1", ack="auto")
    await peer.take_from("/queue/a", "browser:true", ident="2")
    await durable_world.wait(0)
    assert peer.is_open
    assert names(durable_world) == []
