"""Publishing over STOMP: what travels with a message, the spellings of when and how it goes, and what is refused."""

import pytest

from penstock.model.limits import Limits
from penstock.model.names import NO_TAGS, QueueKey
from penstock.model.publication import Publication
from tests.protocols.stomp.peers import World, frame

SAID_BY_THE_BROKER = (
    "message-id:mine",
    "redelivered:true",
    "subscription:9",
    "ack:mine",
    "delivery-count:7",
    "timestamp:1",
    "JMSXUserID:root",
    "JMSXDeliveryCount:7",
)


async def test_headers_travel_and_those_of_the_broker_do_not(world: World) -> None:
    """A publisher says what its message is about; who it is and how often it came is the broker's to say."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    await peer.say(
        "SEND", "destination:/queue/a", *SAID_BY_THE_BROKER, "content-type:text/plain", "colour:red", "colour:blue"
    )
    (message,) = peer.messages()
    assert (message.headers["content-type"], message.headers["colour"]) == ("text/plain", "red")
    assert (message.headers["redelivered"], message.headers["delivery-count"]) == ("false", "1")
    assert (message.headers["subscription"], message.headers["message-id"]) == ("1", f"0-{message.sequence}")
    assert message.headers["timestamp"] == str(int(world.clock.seconds * 1000))
    assert not {"ack", "JMSXUserID", "JMSXDeliveryCount", "receipt"} & message.headers.keys()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_headers_from_elsewhere_cannot_pass_for_those_of_the_broker(world: World, version: str) -> None:
    """Other protocols let publishers name headers as they like, and then frames must still be whole."""
    peer = world.peer(version)
    await peer.take_from("/queue/a", ack="auto")
    attributes = Publication(
        headers={
            "content-length": "1", "content-length ": "2", "content-length:": "3", "ack": "x", "": "nameless",
            "forged": "\n\n\0MESSAGE\n", "colour": "red",
        }
    )  # fmt: skip
    engine, now = world.runtime.engine, world.runtime.now()
    engine.publish(
        QueueKey("a", NO_TAGS),
        b"whole",
        now,
        engine.clients.connect(now, bytes(16)),
        4,
        attributes.attributes(now, Limits()),
    )
    world.runtime.touch()
    await world.quiet()
    message = peer.take()
    assert (message.body, message.headers["colour"]) == (b"whole", "red")
    assert not {"ack", "content-length ", "content-length:", ""} & message.headers.keys()


@pytest.mark.parametrize("body", [b"", b"\0", b"a\0b\n\0\0", bytes(range(256)), "grüße".encode()])
async def test_any_body_arrives_as_it_was_sent(world: World, body: bytes) -> None:
    """Bodies are bytes, and a MESSAGE always says how many."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    await peer.say("SEND", "destination:/queue/a", body=body)
    message = peer.take()
    assert (message.body, message.headers["content-length"]) == (body, str(len(body)))


async def test_a_body_without_a_length_ends_at_the_first_nul(world: World) -> None:
    """As programs send texts that do not count their bytes."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    await peer.say("SEND", "destination:/queue/a", body=b"one\nline and another", length=False)
    assert peer.bodies() == ["one\nline and another"]


async def test_the_higher_priority_goes_first_and_the_older_of_one(world: World) -> None:
    """Without a header the priority is 4."""
    peer = world.peer()
    for body, *lines in (("low", "priority:3"), ("plain",), ("four", "priority:4"), ("top", "priority:4294967295")):
        await peer.publish("/queue/a", body, headers=lines)
    await peer.take_from("/queue/a", ack="auto")
    messages = peer.messages()
    assert [one.body for one in messages] == [b"top", b"plain", b"four", b"low"]
    assert [one.headers["priority"] for one in messages] == ["4294967295", "4", "4", "3"]


@pytest.mark.parametrize("spelling", ["expires:{at}", "expiration:5000", "ttl:5000"])
async def test_what_is_too_old_goes_to_the_dead_letters(world: World, spelling: str) -> None:
    """A time to live may be said as a moment or as a span, in milliseconds."""
    peer = world.peer()
    line = spelling.format(at=int((world.clock.seconds + 5) * 1000))
    await peer.publish("/queue/a", "x", headers=[line])
    await world.wait(4.9)
    assert world.length("a") == 1
    await world.wait(0.2)
    assert (world.length("a"), world.length("DLQ.a")) == (0, 1)
    await peer.take_from("/queue/DLQ.a", ack="auto")
    assert peer.take().headers["death-reason"] == "expired"


async def test_a_message_shows_when_it_expires(world: World) -> None:
    """A consumer sees the moment, however it was said; 0 is never."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    for line in ("ttl:5000", "expires:0", "ttl:0"):
        await peer.publish("/queue/a", "x", headers=[line])
    with_end, *without = peer.messages()
    assert with_end.headers["expires"] == str(int((world.clock.seconds + 5) * 1000))
    assert not any("expires" in one.headers for one in without)


async def test_what_was_too_old_when_it_was_sent_is_a_dead_letter(world: World) -> None:
    """It is confirmed, handed to nobody, and found where somebody would look for it."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    await peer.say("SEND", "destination:/queue/a", "expires:1000", "receipt:r", body=b"old")
    await world.wait(1)
    assert [one.command for one in peer.frames] == ["RECEIPT"]
    assert (world.length("a"), world.length("DLQ.a")) == (0, 1)


@pytest.mark.parametrize("spelling", ["AMQ_SCHEDULED_DELAY:3000", "x-delay:3000", "AMQ_SCHEDULED_TIME:{at}"])
@pytest.mark.parametrize("channel", ["/queue/a", "/topic/a"])
async def test_a_delayed_message_waits_for_its_time(world: World, spelling: str, channel: str) -> None:
    """On queues and topics, in every spelling; meanwhile others overtake it."""
    peer = world.peer()
    await peer.take_from(channel, ack="auto")
    await peer.publish(channel, "later", headers=[spelling.format(at=int((world.clock.seconds + 3) * 1000))])
    await peer.publish(channel, "now")
    assert peer.bodies() == ["now"]
    await world.wait(2.9)
    assert peer.bodies() == []
    await world.wait(0.2)
    assert peer.bodies() == ["later"]


async def test_a_time_that_has_passed_is_no_delay(world: World) -> None:
    """AMQ_SCHEDULED_TIME of yesterday means at once."""
    peer = world.peer()
    await peer.take_from("/queue/a", ack="auto")
    await peer.publish("/queue/a", "x", headers=["AMQ_SCHEDULED_TIME:1000"])
    assert peer.bodies() == ["x"]


@pytest.mark.parametrize("header", ["JMSXGroupID", "message_group"])
async def test_a_group_goes_in_order_to_one_consumer_at_a_time(world: World, header: str) -> None:
    """The second of a group is handed to nobody else while the first is in work; others overtake it."""
    first, second = world.peer(), world.peer()
    for peer in (first, second):
        await peer.take_from("/queue/a", "prefetch-count:1")
    publisher = world.peer()
    await publisher.publish("/queue/a", "g1", "g2", headers=[f"{header}:g"])
    await publisher.publish("/queue/a", "other")
    has_first, has_other = (first, second) if first.frames[0].body == b"g1" else (second, first)
    assert ([one.body for one in has_first.frames], [one.body for one in has_other.frames]) == ([b"g1"], [b"other"])
    await has_other.say("ACK", f"id:{has_other.take().headers['ack']}")
    assert has_other.frames == [], "the second of the group went to another while the first was in work"
    taken = has_first.take()
    assert taken.headers[header] == "g"
    await has_first.say("ACK", f"id:{taken.headers['ack']}")
    assert [*has_first.frames, *has_other.frames][0].body == b"g2"


async def test_a_message_with_a_key_takes_the_place_of_the_one_that_waits(world: World) -> None:
    """The newest content, in the oldest place."""
    peer = world.peer()
    await peer.publish("/queue/a", "old", headers=["key:k"])
    await peer.publish("/queue/a", "between")
    await peer.publish("/queue/a", "new", headers=["key:k"])
    await peer.take_from("/queue/a", ack="auto")
    assert peer.bodies() == ["new", "between"]


async def test_a_dedup_id_is_stored_once(world: World) -> None:
    """A publisher that is not sure sends again; each time it is confirmed."""
    peer = world.peer()
    for receipt in ("1", "2"):
        await peer.say("SEND", "destination:/queue/a", "dedup-id:d", f"receipt:{receipt}", body=b"once")
    await world.wait(0)
    assert [one.headers["receipt-id"] for one in peer.frames] == ["1", "2"]
    assert world.length("a") == 1


async def test_tags_choose_the_queue(world: World) -> None:
    """Queues of one name and different tags are different; order, spaces and repetition of tags do not matter."""
    peer = world.peer()
    await peer.publish("/queue/a", "1", headers=["tags:eu,fast"])
    await peer.publish("/queue/a", "2", headers=["tags: fast , eu,eu"])
    await peer.publish("/queue/a", "3", headers=["tags:"])
    assert (world.length("a", "eu", "fast"), world.length("a"), world.length("a", "eu")) == (2, 1, 0)


async def test_a_queue_that_must_be_there_takes_messages_when_it_is(world: World) -> None:
    """`/amq/queue/` makes nothing."""
    peer = world.peer()
    world.set_queue("a")
    await peer.publish("/amq/queue/a", "x")
    await peer.take_from("/amq/queue/a", ack="auto")
    message = peer.take()
    assert (message.body, message.headers["destination"]) == (b"x", "/queue/a")


async def test_a_full_queue_refuses_the_next_message(world: World) -> None:
    """The publisher is told which receipt it will not get; those before it were taken."""
    world.set_queue("a", max_length=2)
    peer = world.peer()
    peer.session.receive(
        b"".join(frame("SEND", "destination:/queue/a", f"receipt:{number}", body=b"x") for number in range(3))
    )
    await world.quiet()
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("QueueFull", "2")
    assert world.length("a") == 2


async def test_without_auto_create_a_missing_channel_is_refused(world: World) -> None:
    """Neither queues nor topics come into being by a SEND."""
    world.runtime.engine.channels.auto_create = False
    for destination in ("/queue/a", "/topic/a"):
        peer = world.peer()
        await peer.say("SEND", f"destination:{destination}", "receipt:r", body=b"x")
        assert peer.error().headers["message"] == "NoObject"


@pytest.mark.parametrize("name", ["AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"])
async def test_what_nothing_would_come_of_is_refused(world: World, name: str) -> None:
    """A schedule that would be ignored is worse than an error."""
    peer = world.peer()
    await peer.publish("/queue/a", "x", headers=[f"{name}:5"])
    assert name in peer.error().body.decode()
    assert world.length("a") == 0


async def test_a_body_may_be_as_large_as_the_limit_and_no_larger() -> None:
    """What is too large is refused before it is read whole."""
    world = World(limits=Limits(body_bytes_max=1000))
    await world.start()
    peer = world.peer()
    await peer.say("SEND", "destination:/queue/a", body=b"x" * 1000)
    assert world.length("a") == 1
    peer.session.receive(b"SEND\ndestination:/queue/a\ncontent-length:1001\n\n")
    await world.quiet()
    error = peer.error()
    assert (error.headers["message"], "1001" in error.body.decode()) == ("TooLarge", True)
    await world.stop()


async def test_more_destinations_than_a_session_remembers_are_all_served(world: World) -> None:
    """What a session remembers is bounded, what it can address is not."""
    peer = world.peer()
    for number in range(1001):
        peer.tell("SEND", f"destination:/queue/q{number}", body=b"x")
    peer.tell("SEND", "destination:/queue/q0", body=b"x")
    await world.quiet()
    assert (world.length("q0"), world.length("q1000")) == (2, 1)
    assert len(peer.session._targets) < 1000
