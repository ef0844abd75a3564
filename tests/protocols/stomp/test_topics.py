"""Topics over STOMP: everybody gets everything in order, by name or by pattern, from the end or from earlier."""

import pytest

from tests.protocols.stomp.peers import World, frame


async def test_every_subscriber_gets_every_message_in_order(world: World) -> None:
    """Those who come later get what comes later; a queue of the same name is something else."""
    peers = [world.peer(version) for version in ("1.0", "1.1", "1.2")]
    for peer in peers:
        await peer.take_from("/topic/t", ack="auto")
    await peers[0].publish("/topic/t", *"123")
    late = world.peer()
    await late.take_from("/topic/t", ack="auto")
    await peers[0].publish("/topic/t", "4")
    await peers[0].publish("/queue/t", "not for them")
    assert [peer.bodies() for peer in peers] == [[*"1234"]] * 3
    assert late.bodies() == ["4"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("news.*", ["news.eu", "news.us"]),
        ("news.#", ["news", "news.eu", "news.us", "news.eu.sport"]),
        ("news.>", ["news", "news.eu", "news.us", "news.eu.sport"]),
        ("*.eu", ["news.eu", "weather.eu"]),
        ("*.eu.*", ["news.eu.sport"]),
        ("#", ["news", "news.eu", "weather.eu", "news.us", "news.eu.sport"]),
    ],
)
async def test_patterns_take_in_topics_that_are_there_and_that_come(
    world: World, pattern: str, expected: list[str]
) -> None:
    """`*` is one word, a final `#` or `>` the rest; each message shows its topic."""
    peer = world.peer()
    topics = ["news", "news.eu", "weather.eu", "news.us", "news.eu.sport"]
    for topic in topics[:3]:
        world.set_topic(topic)
    await peer.take_from(f"/topic/{pattern}", ack="auto")
    for topic in topics:
        await peer.publish(f"/topic/{topic}", topic)
    messages = peer.messages()
    assert sorted(one.body.decode() for one in messages) == sorted(expected)
    assert all(one.headers["destination"] == f"/topic/{one.body.decode()}" for one in messages)


async def test_a_pattern_over_very_many_topics_remembers_a_few(world: World) -> None:
    """Each message shows its topic, and topics that have gone do not stay in the memory of a subscription."""
    peer = world.peer()
    await peer.take_from("/topic/#", ack="auto")
    for number in [*range(1500), 0]:
        peer.tell("SEND", f"destination:/topic/t.{number}")
    await world.quiet()
    assert [one.headers["destination"] for one in peer.messages()] == [
        f"/topic/t.{number}" for number in [*range(1500), 0]
    ]
    assert len(peer.session._subscriptions._by_id[b"1"]._heads) < 1000


async def test_overlapping_subscriptions_deliver_twice(world: World) -> None:
    """Each with its own id, so that a program can tell them apart; also two of the very same topic."""
    peer = world.peer()
    await peer.take_from("/topic/a.b", ident="1", ack="auto")
    await peer.take_from("/topic/a.*", ident="2", ack="auto")
    await peer.take_from("/topic/a.b", ident="3", ack="auto")
    await peer.publish("/topic/a.b", "x", "y")
    got = [(one.headers["subscription"], one.body.decode()) for one in peer.messages()]
    assert sorted(got) == [(ident, body) for ident in "123" for body in "xy"]
    assert all(got.index((ident, "x")) < got.index((ident, "y")) for ident in "123")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from-seq:0", [*"12345"]),
        ("from-seq:{third}", [*"345"]),
        ("from-seq:-1", ["5"]),
        ("x-stream-offset:first", [*"12345"]),
        ("x-stream-offset:next", ["5"]),
        ("x-stream-offset:offset={third}", [*"345"]),
        ("activemq.retroactive:true", [*"12345"]),
        ("activemq.retroactive:false", ["5"]),
    ],
)
async def test_a_subscriber_may_begin_earlier(world: World, line: str, expected: list[str]) -> None:
    """As far as the topic retains, in the spellings of other brokers too."""
    world.set_topic("t", retain_count=100)
    peer = world.peer()
    await peer.take_from("/topic/t", ack="auto")
    await peer.publish("/topic/t", *"1234")
    third = peer.messages()[2].sequence
    late = world.peer()
    await late.take_from("/topic/t", line.format(third=third), ack="auto")
    await peer.publish("/topic/t", "5")
    assert late.bodies() == expected


async def test_a_topic_retains_what_it_was_set_to(world: World) -> None:
    """Whoever begins at the first gets the first that is there."""
    world.set_topic("t", retain_count=2)
    peer = world.peer()
    await peer.publish("/topic/t", *"12345")
    await peer.take_from("/topic/t", "from-seq:0", ack="auto")
    assert peer.bodies() == ["4", "5"]


async def test_what_a_selector_refuses_is_settled_for_that_subscriber(world: World) -> None:
    """It does not wait for a change of mind, and others get it."""
    picky, other = world.peer(), world.peer()
    await picky.take_from("/topic/t", "durable:true", "selector:n > 1", ident="picky")
    await other.take_from("/topic/t", ack="auto")
    for number in (1, 2):
        await other.publish("/topic/t", str(number), headers=[f"n:{number}"])
    assert (picky.bodies(), other.bodies()) == (["2"], ["1", "2"])
    await picky.say("UNSUBSCRIBE", "id:picky")
    again = world.peer()
    await again.take_from("/topic/t", "durable:true", ident="picky")
    assert again.bodies() == ["2"]


async def test_a_connection_lost_does_not_count_against_a_subscriber(world: World) -> None:
    """A durable one gets the message again, marked, and is not removed for it."""
    world.set_topic("t", max_failures=2)
    peer = world.peer()
    await peer.take_from("/topic/t", "durable:true", ident="mine")
    await peer.publish("/topic/t", "x")
    for _ in range(3):
        await peer.vanish()
        peer = world.peer()
        await peer.take_from("/topic/t", "durable:true", ident="mine")
    message = peer.frames[-1]
    assert (message.headers["redelivered"], message.headers["delivery-count"]) == ("true", "1")


async def test_a_subscriber_that_goes_leaves_nothing_behind(world: World) -> None:
    """Neither by UNSUBSCRIBE nor by losing its connection."""
    staying = world.peer()
    await staying.take_from("/topic/t", ack="auto")
    for goes_politely in (True, False):
        peer = world.peer()
        await peer.take_from("/topic/t")
        await staying.publish("/topic/t", "x")
        assert peer.bodies() == ["x"]
        if goes_politely:
            await peer.say("UNSUBSCRIBE", "id:1")
        else:
            await peer.vanish()
        topic = world.runtime.engine.channels.topics["t"]
        assert (len(topic.subscribers), topic.kept()) == (1, [])


async def test_a_deleted_topic_tells_its_subscribers(world: World) -> None:
    """By an ERROR, since nothing more would come; one to a pattern goes on."""
    named, wild = world.peer(), world.peer()
    await named.take_from("/topic/t.a", ack="auto")
    await wild.take_from("/topic/t.*", ack="auto")
    engine = world.runtime.engine
    engine.subscriptions.delete_topic(engine.channels.topics["t.a"], world.runtime.now())
    world.runtime.touch()
    await world.quiet()
    assert "deleted" in named.error().body.decode()
    await wild.publish("/topic/t.a", "again")
    assert wild.bodies() == ["again"]


async def test_what_is_sent_before_the_subscription_in_one_piece_is_not_seen(world: World) -> None:
    """The end of a topic is where it was when SUBSCRIBE was handled, not when its bytes came."""
    peer = world.peer()
    peer.session.receive(
        frame("SEND", "destination:/topic/t", body=b"before")
        + frame("SUBSCRIBE", "id:1", "destination:/topic/t", "ack:auto")
        + frame("SEND", "destination:/topic/t", body=b"after")
    )
    await world.quiet()
    assert peer.bodies() == ["after"]
