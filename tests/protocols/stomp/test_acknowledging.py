"""Acknowledging over STOMP: what an ACK or NACK means in each version and mode, and what becomes of the rest."""

import pytest

from tests.protocols.stomp.peers import Peer, World
from tests.stomp_wire import Frame


def naming(peer_version: str, message: Frame) -> tuple[str, ...]:
    """Return the lines by which a version names a message in ACK and NACK."""
    if peer_version == "1.2":
        return (f"id:{message.headers['ack']}",)
    if peer_version == "1.1":
        return (f"message-id:{message.headers['message-id']}", f"subscription:{message.headers['subscription']}")
    return (f"message-id:{message.headers['message-id']}",)


async def taken_by(
    world: World, version: str, *bodies: str, ack: str = "client-individual"
) -> tuple[Peer, list[Frame]]:
    """Return somebody who has subscribed to the queue `a`, and the messages that it was handed."""
    peer = world.peer(version)
    await peer.take_from("/queue/a", ack=ack)
    await peer.publish("/queue/a", *bodies)
    return peer, peer.messages()


VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


@VERSIONS
async def test_each_version_names_a_message_in_its_way(world: World, version: str) -> None:
    """1.2 by the header `ack`, 1.1 by message-id and subscription, 1.0 by message-id alone."""
    peer, (first, second) = await taken_by(world, version, "1", "2")
    assert ("ack" in first.headers) == (version == "1.2")
    await peer.say("ACK", *naming(version, second))
    assert world.length("a") == 1
    await peer.say("ACK", *naming(version, first))
    assert (world.length("a"), peer.is_open) == (0, True)


@VERSIONS
async def test_client_acknowledges_all_before(world: World, version: str) -> None:
    """In mode `client` one ACK means each message of the subscription up to the one that it names."""
    peer, messages = await taken_by(world, version, "1", "2", "3", ack="client")
    await peer.say("ACK", *naming(version, messages[1]))
    assert world.length("a") == 1
    await peer.vanish()
    other = world.peer()
    await other.take_from("/queue/a")
    assert other.bodies() == ["3"]


async def test_client_acknowledges_its_own_subscription_alone(world: World) -> None:
    """Other subscriptions of the connection are not taken along."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="client", ident="1")
    await peer.take_from("/queue/b", ack="client", ident="2")
    await peer.publish("/queue/a", "x")
    await peer.publish("/queue/b", "x")
    of_a, of_b = peer.messages()
    assert (of_a.headers["subscription"], of_b.headers["subscription"]) == ("1", "2")
    await peer.say("ACK", *naming("1.2", of_b))
    assert (world.length("a"), world.length("b")) == (1, 0)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_client_refuses_all_before(world: World, version: str) -> None:
    """NACK in mode `client` counts a failure for each of them, and they come again in their order."""
    peer, messages = await taken_by(world, version, "1", "2", "3", ack="client")
    await peer.say("NACK", *naming(version, messages[1]))
    again = peer.messages()
    assert [one.body for one in again] == [b"1", b"2"]
    assert {(one.headers["redelivered"], one.headers["delivery-count"]) for one in again} == {("true", "2")}


async def test_in_client_a_message_that_came_again_stands_after_what_was_sent_before(world: World) -> None:
    """Its second delivery is the newest, so an ACK of an older one does not mean it."""
    for version in ("1.1", "1.2"):
        peer = world.peer(version)
        await peer.take_from("/queue/a", ack="client")
        await peer.publish("/queue/a", "1", "2")
        first, second = peer.messages()
        await peer.say("NACK", *naming(version, first))
        again = peer.take()
        await peer.say("ACK", *naming(version, second))
        assert world.length("a") == 1, version
        await peer.say("ACK", *naming(version, again))
        assert world.length("a") == 0, version
        await peer.say("DISCONNECT")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_client_acknowledges_what_is_held_still(world: World, version: str) -> None:
    """A message whose lease has ended is not meant any more by an ACK of a later one; it comes again, after that."""
    peer = world.peer(version)
    await peer.take_from("/queue/a", "work-timeout:5", "prefetch-count:10", ack="client")
    await peer.publish("/queue/a", "1")
    await world.wait(3.0)
    await peer.publish("/queue/a", "2")
    await world.wait(2.1)
    first, second, again = peer.messages()
    assert (first.body, second.body, again.body) == (b"1", b"2", b"1")
    await peer.say("ACK", *naming(version, second))
    assert (world.length("a"), peer.is_open) == (1, True)
    await peer.say("ACK", *naming(version, again))
    assert (world.length("a"), peer.is_open) == (0, True)


async def test_an_ack_names_a_subscription_that_is_there(world: World) -> None:
    """In version 1.1, which asks for it."""
    peer, (message,) = await taken_by(world, "1.1", "x")
    await peer.say("ACK", f"message-id:{message.headers['message-id']}", "subscription:other")
    assert peer.error().headers["message"] == "NoObject"


async def test_auto_is_settled_by_being_sent(world: World) -> None:
    """Nothing is to be acknowledged, and nothing comes again."""
    peer, (message,) = await taken_by(world, "1.2", "x", ack="auto")
    assert ("ack" in message.headers, world.length("a")) == (False, 0)
    await peer.vanish()
    assert world.length("a") == 0


@VERSIONS
async def test_what_is_acknowledged_twice_is_refused_the_second_time(world: World, version: str) -> None:
    """An ACK that means nothing is a mistake that the program should hear of."""
    peer, (message,) = await taken_by(world, version, "x")
    await peer.say("ACK", *naming(version, message))
    assert peer.is_open
    await peer.say("ACK", *naming(version, message))
    assert peer.error().headers["message"] == "NoObject"


async def test_nobody_acknowledges_for_another(world: World) -> None:
    """The name of a message in one connection means nothing in the next."""
    _, (message,) = await taken_by(world, "1.1", "x")
    thief = world.peer("1.1")
    await thief.take_from("/queue/b")
    await thief.say("ACK", *naming("1.1", message))
    assert thief.error().headers["message"] == "NoObject"
    assert world.length("a") == 1


async def test_a_refused_message_comes_after_the_delay_of_its_queue(world: World) -> None:
    """NACK counts a failure; the delay grows as the queue has it."""
    world.set_queue("a", retry_delay=2.0, retry_backoff=3.0)
    peer, (message,) = await taken_by(world, "1.2", "x")
    for wait, count in ((2.0, "2"), (6.0, "3")):
        await peer.say("NACK", *naming("1.2", message))
        await world.wait(wait - 0.1)
        assert peer.frames == []
        await world.wait(0.2)
        message = peer.take()
        assert (message.headers["redelivered"], message.headers["delivery-count"]) == ("true", count)


async def test_a_message_that_failed_too_often_is_a_dead_letter(world: World) -> None:
    """The last failure sends it to the dead letters, which say where it came from and why."""
    world.set_queue("a", "eu", retry_limit=3)
    peer = world.peer()
    await peer.take_from("/queue/a", "tags:eu")
    await peer.publish("/queue/a", "x", headers=["tags:eu"])
    for _ in range(3):
        await peer.say("NACK", *naming("1.2", peer.take()))
    assert peer.frames == []
    await peer.take_from("/queue/DLQ.a", ident="2", ack="auto")
    headers = peer.take().headers
    assert (headers["original-queue"], headers["original-tags"], headers["tags"]) == ("a", "eu", "eu")
    assert (headers["death-reason"], headers["death-count"]) == ("refused", "1")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_a_message_that_shall_not_come_again_is_a_dead_letter_at_once(world: World, version: str) -> None:
    """NACK with `requeue:false`; with `requeue:true`, which is the default, it comes again."""
    peer, (message,) = await taken_by(world, version, "x")
    await peer.say("NACK", *naming(version, message), "requeue:true")
    await peer.say("NACK", *naming(version, peer.take()), "requeue:false")
    assert (world.length("a"), world.length("DLQ.a"), peer.frames) == (0, 1, [])


async def test_a_refused_message_of_a_topic_comes_after_a_second(world: World) -> None:
    """Topics wait one second if nothing else was set, and others go on meanwhile."""
    peer = world.peer()
    await peer.take_from("/topic/t")
    await peer.publish("/topic/t", "1", "2")
    first, second = peer.messages()
    await peer.say("NACK", *naming("1.2", first))
    await peer.say("ACK", *naming("1.2", second))
    await world.wait(0.9)
    assert peer.frames == []
    await world.wait(0.2)
    again = peer.take()
    assert (again.body, again.headers["delivery-count"]) == (b"1", "2")


async def test_a_message_of_a_topic_that_shall_not_come_again_is_a_dead_letter_of_that_subscriber(world: World) -> None:
    """Others keep theirs, and the subscriber stays."""
    peer, other = world.peer(), world.peer()
    for one in (peer, other):
        await one.take_from("/topic/t")
    await peer.publish("/topic/t", "x", "y")
    await peer.say("NACK", *naming("1.2", peer.take()), "requeue:false")
    assert (world.length("DLQ.topic.t"), peer.bodies(), other.bodies()) == (1, ["y"], ["x", "y"])


async def test_who_refuses_one_message_of_a_topic_too_often_is_removed(world: World) -> None:
    """It is told by an ERROR, and what it had waiting is among the dead letters of the topic."""
    world.set_topic("t", max_failures=2)
    peer = world.peer()
    await peer.take_from("/topic/t", "prefetch-count:1")
    await peer.publish("/topic/t", "bad", "waiting")
    await peer.say("NACK", *naming("1.2", peer.take()))
    await world.wait(1.1)
    waiting = peer.take()
    await peer.say("ACK", *naming("1.2", waiting))
    await peer.say("NACK", *naming("1.2", peer.take()))
    await world.wait(1)
    assert "too many failures" in peer.error().body.decode()
    other = world.peer()
    await other.take_from("/queue/DLQ.topic.t", ack="auto")
    assert other.take().headers["original-topic"] == "t"


async def test_a_lost_connection_counts_as_a_failure_on_queues_alone(world: World) -> None:
    """What it held goes to somebody else, marked; it had the message, so it may have done its work."""
    world.set_queue("a", retry_limit=2)
    peer, _ = await taken_by(world, "1.2", "x")
    await peer.vanish()
    second = world.peer()
    await second.take_from("/queue/a")
    again = second.take()
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("true", "2")
    await second.vanish()
    assert (world.length("a"), world.length("DLQ.a")) == (0, 1)


@pytest.mark.parametrize(("good_bye", "count"), [("UNSUBSCRIBE", "1"), ("DISCONNECT", "2")])
async def test_what_is_in_work_at_the_end_goes_to_somebody_else(world: World, good_bye: str, count: str) -> None:
    """UNSUBSCRIBE gives it back without counting; who disconnects while working has failed."""
    peer, _ = await taken_by(world, "1.2", "x")
    await peer.say(good_bye, "id:1")
    other = world.peer()
    await other.take_from("/queue/a")
    again = other.take()
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("true", count)


async def test_what_somebody_holds_when_the_server_stops_is_not_held_against_it(world: World) -> None:
    """It waits again without having failed."""
    peer, _ = await taken_by(world, "1.2", "x")
    peer.session.leave()
    other = world.peer()
    await other.take_from("/queue/a")
    again = other.take()
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("true", "1")


@VERSIONS
async def test_unsubscribing_leaves_other_subscriptions_their_messages(world: World, version: str) -> None:
    """They are in work still, and can be acknowledged; what had been lost before is nobody's concern."""
    peer = world.peer(version)
    await peer.take_from("/queue/a", "work-timeout:5", ident="1")
    await peer.take_from("/queue/b", ident="2")
    await peer.publish("/queue/a", "x")
    await peer.publish("/queue/b", "y")
    _, of_b = peer.messages()
    peer.session.hold_back()
    await world.wait(5.1)
    await peer.say("UNSUBSCRIBE", "id:1", "destination:/queue/a")
    other = world.peer()
    await other.take_from("/queue/b", ident="2")
    assert other.frames == []
    await peer.say("ACK", *naming(version, of_b))
    assert (world.length("b"), peer.is_open) == (0, True)


async def test_after_unsubscribing_its_messages_cannot_be_acknowledged(world: World) -> None:
    """They wait for somebody else by then."""
    peer, (message,) = await taken_by(world, "1.2", "x")
    await peer.say("UNSUBSCRIBE", "id:1")
    await peer.say("ACK", *naming("1.2", message))
    assert peer.error().headers["message"] == "NoObject"


async def test_a_lease_that_ends_counts_as_a_failure(world: World) -> None:
    """With `work-timeout` the connection alone is not enough; the second delivery has an `ack` of its own."""
    peer = world.peer()
    await peer.take_from("/queue/a", "work-timeout:5", "prefetch-count:1")
    await peer.publish("/queue/a", "x")
    first = peer.take()
    await world.wait(4.9)
    assert peer.frames == []
    await world.wait(0.2)
    second = peer.take()
    assert (second.headers["redelivered"], second.headers["delivery-count"]) == ("true", "2")
    await peer.say("ACK", *naming("1.2", second))
    assert (world.length("a"), peer.is_open) == (0, True)
    assert first.headers["message-id"] == second.headers["message-id"]
    assert first.headers["ack"] != second.headers["ack"]


async def test_without_a_work_timeout_the_connection_is_the_lease(world: World) -> None:
    """A consumer may work for hours."""
    peer, (message,) = await taken_by(world, "1.2", "x")
    for _ in range(3):
        await world.wait(3600.0)
    assert peer.frames == []
    await peer.say("ACK", *naming("1.2", message))
    assert world.length("a") == 0


async def test_a_late_ack_of_what_another_has_is_refused(world: World) -> None:
    """Two cannot both have done the work, and the one that lost it has to know."""
    slow = world.peer()
    await slow.take_from("/queue/a", "work-timeout:5", "prefetch-count:1")
    await slow.publish("/queue/a", "x")
    message = slow.take()
    other = world.peer()
    await slow.publish("/queue/a", "y")
    await other.take_from("/queue/a")
    assert other.bodies() == ["y"]
    slow.session.hold_back()
    await world.wait(5.1)
    assert other.bodies() == ["x"]
    await slow.say("ACK", *naming("1.2", message), "receipt:r")
    error = slow.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("NotAssigned", "r")
    assert world.length("a") == 2


async def test_a_late_ack_of_what_nobody_has_succeeds(world: World) -> None:
    """The work was done, so it is not done again."""
    peer = world.peer()
    await peer.take_from("/queue/a", "work-timeout:5", "prefetch-count:1")
    await peer.publish("/queue/a", "x")
    message = peer.take()
    peer.session.hold_back()
    await world.wait(5.1)
    await peer.say("ACK", *naming("1.2", message), "receipt:r")
    assert (peer.take().command, world.length("a")) == ("RECEIPT", 0)


async def test_each_of_many_late_acks_of_what_nobody_has_succeeds(world: World) -> None:
    """However much else the connection holds."""
    world.set_queue("a", retry_delay=60.0)
    peer = world.peer()
    await peer.take_from("/queue/a", "work-timeout:5", "prefetch-count:0")
    await peer.take_from("/queue/b", ident="2")
    await peer.publish("/queue/a", *[str(number) for number in range(1100)])
    late = peer.messages()
    await world.wait(5.1)
    await peer.publish("/queue/b", "x")
    for message in late:
        peer.tell("ACK", *naming("1.2", message))
    await world.quiet()
    assert (world.length("a"), peer.is_open) == (0, True)


async def test_what_is_held_is_not_looked_through_again_and_again(world: World) -> None:
    """A connection may hold very many messages: all of them are looked at when they have become twice as many."""
    peer = world.peer()
    await peer.take_from("/queue/a", "prefetch-count:0")
    unacked, looked_at = peer.session._subscriptions._shared, set()
    for number in range(100):
        await peer.publish("/queue/a", *[f"{number}"] * 100)
        looked_at.add(unacked._tidied_above)
    assert len(unacked.messages) == 10_000
    assert len(looked_at) == 4, looked_at  # before the first time, and after each of three


async def test_many_messages_that_were_lost_to_others_are_forgotten(world: World) -> None:
    """A consumer that never acknowledges does not fill the memory with what is no longer its own."""
    world.set_queue("a", retry_limit=None)
    peer = world.peer()
    await peer.take_from("/queue/a", "work-timeout:1", "prefetch-count:50")
    await peer.publish("/queue/a", *[str(number) for number in range(50)])
    for _ in range(60):
        await world.wait(1.1)
    assert len(peer.frames) > 2500
    assert len(peer.session._subscriptions.individual) < 1300
    for message in peer.frames[-50:]:
        await peer.say("ACK", f"id:{message.headers['ack']}")
    assert world.length("a") == 0
