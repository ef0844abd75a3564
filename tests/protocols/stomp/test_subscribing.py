"""Subscribing over STOMP: which messages a subscription gets, how many at once, and in which company."""

import pytest

from tests.protocols.stomp.peers import World, frame


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("prefetch-count:3", 3),
        ("activemq.prefetchSize:3", 3),
        ("credit:3", 3),
        ("credit:3,9000", 3),
        ("consumer-window-size:3072", 3),
        ("consumer-window-size:0", 1),
        ("prefetch-count:0", 400),
        ("consumer-window-size:-1", 400),
        ("ack:client-individual", 256),
    ],
)
async def test_no_more_is_handed_out_than_was_asked_for(world: World, line: str, count: int) -> None:
    """In each spelling; without one there is a limit too. One more comes with each acknowledgement."""
    peer = world.peer()
    await peer.publish("/queue/a", *[str(number) for number in range(400)])
    await peer.take_from("/queue/a", line)
    messages = peer.messages()
    assert len(messages) == count
    await peer.say("ACK", f"id:{messages[0].headers['ack']}")
    assert peer.bodies() == ([str(count)] if count < 400 else [])


async def test_auto_is_not_held_up_by_its_prefetch(world: World) -> None:
    """What is settled by being sent makes room at once."""
    peer = world.peer()
    await peer.take_from("/queue/a", "prefetch-count:2", ack="auto")
    await peer.publish("/queue/a", *"12345")
    assert peer.bodies() == [*"12345"]


async def test_prefetch_means_the_connection_alone(world: World) -> None:
    """What one consumer holds is not counted against another, and work is shared out among them."""
    peers = [world.peer() for _ in range(3)]
    for peer in peers:
        await peer.take_from("/queue/a", "prefetch-count:2")
    await peers[0].publish("/queue/a", *"1234567")
    assert [len(peer.frames) for peer in peers] == [2, 2, 2]


async def test_the_receipt_comes_before_the_first_message(world: World) -> None:
    """A program that waits for it has its handler ready by then."""
    for destination, lines in (("/queue/a", ()), ("/topic/t", ("durable:true",))):
        publisher = world.peer()
        await publisher.publish(destination, "x")
        peer = world.peer()
        peer.session.receive(
            frame("SUBSCRIBE", "id:1", f"destination:{destination}", "receipt:r", *lines)
            + frame("SEND", f"destination:{destination}", body=b"y")
        )
        await world.quiet()
        assert [one.command for one in peer.frames][:2] == ["RECEIPT", "MESSAGE"], destination


async def test_each_id_is_used_once_at_a_time(world: World) -> None:
    """After UNSUBSCRIBE it may be used again."""
    peer = world.peer()
    await peer.take_from("/queue/a")
    await peer.say("UNSUBSCRIBE", "id:1")
    await peer.take_from("/queue/b", ack="auto")
    await peer.publish("/queue/b", "x")
    assert peer.bodies() == ["x"]
    await peer.take_from("/queue/c")
    assert "already" in peer.error().body.decode()


async def test_version_1_0_subscribes_without_an_id(world: World) -> None:
    """The destination stands for it, in UNSUBSCRIBE as well."""
    peer = world.peer("1.0")
    await peer.say("SUBSCRIBE", "destination:/queue/a")
    await peer.publish("/queue/a", "x")
    assert peer.take().headers["subscription"] == "/queue/a"
    await peer.say("UNSUBSCRIBE", "destination:/queue/a")
    await peer.publish("/queue/a", "y")
    assert (peer.frames, peer.is_open) == ([], True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), ["plain", "eu", "eu-fast", "us"]),
        (("tags:",), ["plain"]),
        (("tags:eu",), ["eu"]),
        (("tags:eu", "match:exact"), ["eu"]),
        (("tags:eu", "match:strict"), ["eu", "eu-fast"]),
        (("tags:us,fast", "match:combined"), ["eu-fast", "us"]),
        (("tags:us,fast", "match:any"), ["eu-fast", "us"]),
        (("tags:none", "match:any"), []),
    ],
)
async def test_queues_are_chosen_by_name_and_tags(world: World, lines: tuple[str, ...], expected: list[str]) -> None:
    """Now, and those that are made while the subscription waits; a MESSAGE shows the tags of its queue."""
    earlier, later = world.peer(), world.peer()
    await later.take_from("/queue/a", *lines, ack="auto")
    for body in ("plain", "eu", "eu-fast", "us"):
        tags = "" if body == "plain" else body.replace("-", ",")
        await earlier.publish("/queue/a", body, headers=[f"tags:{tags}"])
    messages = later.messages()
    assert [one.body.decode() for one in messages] == expected
    assert [one.headers.get("tags", "plain").replace(",", "-") for one in messages] == expected
    for body in ("plain", "eu", "eu-fast", "us"):
        tags = "" if body == "plain" else body.replace("-", ",")
        await earlier.publish("/queue/b", body, headers=[f"tags:{tags}"])
    await earlier.take_from("/queue/b", *lines, ack="auto")
    assert sorted(earlier.bodies()) == sorted(expected)


async def test_combined_queues_are_served_as_one_and_any_takes_turns(world: World) -> None:
    """`combined`: the oldest of all goes first; `any`: a busy queue does not starve the others."""
    for match, expected in (("combined", ["a1", "a2", "a3", "b1"]), ("any", ["a1", "b1", "a2", "a3"])):
        peer = world.peer()
        await peer.publish(f"/queue/{match}", "a1", "a2", "a3", headers=["tags:a"])
        await peer.publish(f"/queue/{match}", "b1", headers=["tags:b"])
        await peer.take_from(f"/queue/{match}", "tags:a,b", f"match:{match}", ack="auto")
        assert peer.bodies() == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("weight > 9", ["heavy"]),
        ("weight BETWEEN 1 AND 10 AND region = 'eu'", ["heavy", "light"]),
        ("region IN ('us', 'asia') OR weight < 5", ["light", "far"]),
        ("region LIKE 'e%' AND NOT weight = 2", ["heavy"]),
        ("colour IS NULL", ["heavy", "light", "far"]),
        ("colour = 'red'", []),
    ],
)
async def test_a_selector_chooses_by_headers(world: World, selector: str, expected: list[str]) -> None:
    """Texts that are numbers compare as numbers; what a queue's consumer does not want waits for others."""
    chooser, other = world.peer(), world.peer()
    await chooser.take_from("/queue/a", f"selector:{selector}", ack="auto")
    for body, *lines in (
        ("heavy", "weight:10", "region:eu"),
        ("light", "weight:2", "region:eu"),
        ("far", "region:us"),
    ):
        await other.publish("/queue/a", body, headers=lines)
    assert chooser.bodies() == expected
    await other.take_from("/queue/a", ack="auto")
    assert sorted([*expected, *other.bodies()]) == ["far", "heavy", "light"]


async def test_an_empty_selector_is_none(world: World) -> None:
    """Programs send the header with nothing behind it."""
    peer = world.peer()
    await peer.take_from("/queue/a", "selector:", ack="auto")
    await peer.publish("/queue/a", "x")
    assert peer.bodies() == ["x"]


async def test_an_exclusive_subscription_has_its_queue_alone(world: World) -> None:
    """In both spellings: others get nothing until it has gone."""
    for spelling in ("exclusive", "activemq.exclusive"):
        queue = f"/queue/{spelling}"
        first, sole = world.peer(), world.peer()
        await first.take_from(queue, ack="auto")
        await sole.take_from(queue, f"{spelling}:true", ack="auto")
        await first.publish(queue, *"1234")
        assert (first.bodies(), sole.bodies()) == ([], [*"1234"])
        await sole.say("UNSUBSCRIBE", "id:1")
        await first.publish(queue, "5")
        assert first.bodies() == ["5"]


@pytest.mark.parametrize("spelling", ["no-local", "activemq.noLocal"])
async def test_no_local_leaves_out_what_one_has_sent(world: World, spelling: str) -> None:
    """Others get it, and one gets what others have sent; a selector counts besides."""
    me, other = world.peer(), world.peer()
    await me.take_from("/topic/t", f"{spelling}:true", "selector:keep = 'yes'", ack="auto")
    await other.take_from("/topic/t", ack="auto")
    await me.publish("/topic/t", "mine", headers=["keep:yes"])
    await other.publish("/topic/t", "hers", headers=["keep:yes"])
    await other.publish("/topic/t", "unwanted", headers=["keep:no"])
    assert (me.bodies(), other.bodies()) == (["hers"], ["mine", "hers", "unwanted"])


async def test_no_local_alone_leaves_nothing_else_out(world: World) -> None:
    """Without a selector whatever others sent is wanted."""
    me, other = world.peer(), world.peer()
    await me.take_from("/queue/a", "no-local:true", ack="auto")
    await me.publish("/queue/a", "mine")
    await other.publish("/queue/a", "hers")
    assert me.bodies() == ["hers"]


async def test_a_connection_may_have_so_many_subscriptions(world: World) -> None:
    """1,000, browsers among them."""
    peer = world.peer()
    for number in range(1000):
        peer.tell("SUBSCRIBE", f"id:{number}", f"destination:/queue/q{number}")
    await world.quiet()
    assert peer.is_open
    await peer.take_from("/queue/a", ident="one too many")
    assert peer.error().headers["message"] == "TooLarge"


async def test_a_peer_that_does_not_read_is_handed_nothing_more(world: World) -> None:
    """What comes meanwhile goes to others, or waits; it goes on where it was when the peer reads again."""
    slow, quick = world.peer(), world.peer()
    await slow.take_from("/queue/a", ack="auto")
    await slow.take_from("/topic/t", ident="2", ack="auto")
    slow.session.hold_back()
    await slow.take_from("/queue/b", ident="3", ack="auto")
    await quick.publish("/queue/a", "1")
    await quick.publish("/queue/b", "3")
    await quick.publish("/topic/t", "2")
    assert slow.frames == []
    await quick.take_from("/queue/a", ack="auto")
    assert quick.bodies() == ["1"]
    slow.session.go_on()
    await world.quiet()
    assert slow.bodies() == ["2", "3"]


async def test_a_message_shows_its_sequence_where_it_was_asked_for(world: World) -> None:
    """In the header that `include-seq` names; sequences grow."""
    peer = world.peer()
    await peer.take_from("/queue/a", "include-seq:seq", ack="auto")
    await peer.publish("/queue/a", "1", "2")
    first, second = peer.messages()
    assert int(first.headers["seq"]) == first.sequence < second.sequence


async def test_the_message_id_stays_and_ack_changes(world: World) -> None:
    """A program recognises a message that it had before, and cannot confuse two deliveries of it."""
    peer = world.peer()
    await peer.take_from("/queue/a")
    await peer.publish("/queue/a", "x")
    first = peer.take()
    await peer.say("NACK", f"id:{first.headers['ack']}")
    second = peer.take()
    assert first.headers["message-id"] == second.headers["message-id"]
    await peer.say("ACK", f"id:{first.headers['ack']}")
    assert peer.error().headers["message"] == "NoObject"


async def test_a_deleted_queue_leaves_its_subscription_waiting(world: World) -> None:
    """The next queue of the name is served again; what was in work is gone, which its ACK is told."""
    peer = world.peer()
    await peer.take_from("/queue/a")
    await peer.publish("/queue/a", "1")
    first = peer.take()
    engine = world.runtime.engine
    engine.delete(next(iter(engine.channels.queues)), world.runtime.now())
    await peer.publish("/queue/a", "2")
    assert peer.bodies() == ["2"]
    await peer.say("ACK", f"id:{first.headers['ack']}")
    assert peer.error().headers["message"] == "NoObject"
