"""Browsing over STOMP: what waits is shown and not touched."""

import pytest

from penstock.model.access import Access
from tests.protocols.stomp.peers import Peer, World


async def filled(world: World, *bodies: str) -> Peer:
    """Return somebody who has put messages into the queue `a`."""
    peer = world.peer()
    await peer.publish("/queue/a", *bodies)
    return peer


def shown(peer: Peer) -> list[str]:
    """Take all frames, and return the bodies, with `end` for the one that says that all has been shown."""
    return ["end" if one.headers.get("browser") == "end" else one.body.decode() for one in peer.messages()]


async def browse(peer: Peer, *lines: str, destination: str = "/queue/a") -> None:
    """Browse, and wait until all has been shown that there is."""
    await peer.take_from(destination, "browser:true", *lines, ident="look")


async def test_what_waits_is_shown_in_its_order_and_stays(world: World) -> None:
    """By priority, then age; the last frame says that this was all. A consumer gets everything afterwards."""
    peer = await filled(world, "1", "2")
    await peer.publish("/queue/a", "urgent", headers=["priority:9", "colour:red"])
    await browse(peer)
    messages = list(peer.frames)
    assert shown(peer) == ["urgent", "1", "2", "end"]
    assert messages[0].headers["colour"] == "red"
    assert all(one.headers["subscription"] == "look" for one in messages)
    assert messages[-1].headers["destination"] == "/queue/a"
    await browse(peer)
    assert shown(peer) == ["urgent", "1", "2", "end"]
    consumer = world.peer()
    await consumer.take_from("/queue/a", ack="auto")
    messages = consumer.messages()
    assert [one.body for one in messages] == [b"urgent", b"1", b"2"]
    assert {one.headers["redelivered"] for one in messages} == {"false"}


async def test_an_empty_or_missing_queue_is_shown_as_such(world: World) -> None:
    """By the end alone; a missing one is not made by looking at it."""
    peer = world.peer()
    await browse(peer, destination="/queue/missing")
    assert shown(peer) == ["end"]
    assert not world.runtime.engine.channels.queues
    await peer.take_from("/amq/queue/missing", "browser:true")
    assert peer.error().headers["message"] == "NoObject"


async def test_many_are_shown_slice_by_slice(world: World) -> None:
    """So that others get their turn; nothing is left out and nothing shown twice."""
    bodies = [str(number) for number in range(1000)]
    peer = await filled(world, *bodies)
    peer.tell("SUBSCRIBE", "id:look", "destination:/queue/a", "browser:true")
    slices = []
    while not slices or slices[-1] < 1001:
        peer.turn()
        slices.append(len(peer.frames))
    assert len(slices) > 3
    assert shown(peer) == [*bodies, "end"]


async def test_what_is_gone_before_it_was_shown_is_left_out(world: World) -> None:
    """A browser holds nothing, so others may take what it has yet to show."""
    peer = await filled(world, *[str(number) for number in range(450)])
    peer.tell("SUBSCRIBE", "id:look", "destination:/queue/a", "browser:true")
    peer.turn()
    seen = len(peer.frames)
    consumer = world.peer()
    consumer.tell("SUBSCRIBE", "id:1", "destination:/queue/a", "ack:auto", "prefetch-count:1000")
    world.runtime.engine.dispatch(world.runtime.now(), 1000)
    await world.quiet()
    assert (seen > 0, len(shown(peer))) == (True, seen + 1)


async def test_a_browser_may_stay_and_see_what_comes(world: World) -> None:
    """With `browser-end:false`, until UNSUBSCRIBE; what was settled meanwhile it may never see."""
    peer = await filled(world, "1")
    await browse(peer, "browser-end:false")
    assert shown(peer) == ["1"]
    await peer.publish("/queue/a", "2", "3")
    await world.wait(1.1)
    assert shown(peer) == ["2", "3"]
    await world.wait(1.1)
    assert shown(peer) == []
    await peer.say("UNSUBSCRIBE", "id:look", "receipt:r")
    peer.frames.clear()
    await peer.publish("/queue/a", "4")
    await world.wait(1.1)
    assert (peer.frames, peer.is_open) == ([], True)


async def test_a_browser_may_begin_later_and_choose(world: World) -> None:
    """By `from-seq`, by selector, by tags."""
    peer = world.peer()
    await peer.publish("/queue/a", "1")
    await peer.publish("/queue/a", "2", headers=["colour:red"])
    await peer.publish("/queue/a", "3", headers=["tags:eu", "colour:red"])
    await browse(peer, "include-seq:seq", "selector:colour = 'red'")
    first = peer.frames[0]
    assert shown(peer) == ["2", "3", "end"]
    await browse(peer, f"from-seq:{first.headers['seq']}")
    assert shown(peer) == ["2", "3", "end"]
    await browse(peer, "tags:eu")
    assert shown(peer) == ["3", "end"]


async def test_a_browser_sees_what_was_delivered_before_and_came_back(world: World) -> None:
    """It shows how often; what somebody works on just now it does not show."""
    peer = await filled(world, "1", "2")
    worker = world.peer()
    await worker.take_from("/queue/a", "prefetch-count:1")
    await browse(peer)
    assert shown(peer) == ["2", "end"]
    worker.session.hold_back()
    await worker.say("NACK", f"id:{worker.take().headers['ack']}")
    await browse(peer)
    again = peer.frames[0]
    assert (again.body, again.headers["redelivered"], again.headers["delivery-count"]) == (b"1", "true", "2")


async def test_a_browser_that_does_not_read_is_shown_nothing_more(world: World) -> None:
    """It goes on where it was when the peer reads again."""
    bodies = [str(number) for number in range(450)]
    peer = await filled(world, *bodies)
    peer.tell("SUBSCRIBE", "id:look", "destination:/queue/a", "browser:true")
    peer.turn()
    seen = len(peer.frames)
    peer.session.hold_back()
    await world.quiet()
    await world.wait(5.0)
    assert len(peer.frames) == seen < 450
    peer.session.go_on()
    await world.quiet()
    assert shown(peer) == [*bodies, "end"]


async def test_a_browser_has_an_id_like_every_subscription(world: World) -> None:
    """While it lasts nobody else has it; afterwards it is free."""
    peer = await filled(world, "1")
    await browse(peer)
    await browse(peer, "browser-end:false", destination="/amq/queue/a")
    assert shown(peer) == ["1", "end", "1"]
    await peer.take_from("/queue/b", ident="look")
    assert "already" in peer.error().body.decode()


@pytest.mark.parametrize("line", ["browser-end:maybe", "browser:maybe"])
async def test_what_makes_no_sense_is_refused(world: World, line: str) -> None:
    """Instead of being taken for yes or no."""
    peer = world.peer()
    await peer.take_from("/queue/a", "browser:true" if "end" in line else line, line)
    assert line.partition(":")[0] in peer.error().body.decode()


async def test_a_temporary_queue_is_shown_to_its_owner_and_is_no_other_queue(world: World) -> None:
    """By the name that the owner gave it; a queue that is called so, which it may not consume from, stays unseen."""
    peer = await filled(world, "secret")
    world.access = lambda user: Access(user, {})
    stranger = world.peer()
    await browse(stranger, destination="/temp-queue/a")
    assert stranger.error().headers["message"] == "NoObject"
    owner = world.peer()
    await owner.take_from("/temp-queue/a", "prefetch-count:1")
    await owner.publish("/temp-queue/a", "mine", "next")
    assert owner.bodies() == ["mine"]
    await browse(owner, destination="/temp-queue/a")
    assert {one.headers["destination"] for one in owner.frames} == {"/temp-queue/a"}
    assert shown(owner) == ["next", "end"]
    assert peer.is_open
