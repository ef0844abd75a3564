"""Receipts: what they wait for, in which order they come, and what becomes of them when the store fails."""

from collections.abc import AsyncIterator, Callable

import pytest

from penstock.store.memory import Memory
from tests.broker.stores import FailingStore, HeldStore
from tests.protocols.stomp.peers import Peer, World, frame


class FullMemory(Memory):
    """Has no room when it is told so."""

    is_full = False

    def has_room(self) -> bool:
        return not self.is_full


@pytest.fixture
def store() -> HeldStore:
    """Return a store that can be held."""
    return HeldStore()


@pytest.fixture
async def held_world(store: HeldStore) -> AsyncIterator[World]:
    """Return a broker on that store."""
    opened = World(store)
    await opened.start()
    yield opened
    store.let_go()
    await opened.stop()


async def ready(world: World) -> tuple[Peer, str]:
    """Return somebody who holds a message of the queue `a` and what names it, with a transaction begun."""
    peer = world.peer()
    await peer.take_from("/queue/a", ident="1")
    await peer.take_from("/topic/t", "durable:true", ident="durable")
    await peer.receipt_of("SEND", "destination:/queue/a", body=b"x")
    name = peer.take().headers["ack"]
    await peer.say("BEGIN", "transaction:t")
    await peer.publish("/queue/b", "x", headers=["transaction:t"])
    return peer, name


#: Frames whose receipt promises that something is on disk.
PROMISES = {
    "SEND": lambda name: ("SEND", "destination:/queue/c"),
    "SEND with headers": lambda name: ("SEND", "destination:/queue/c", "colour:red", "persistent:true"),
    "SEND to a topic": lambda name: ("SEND", "destination:/topic/t"),
    "ACK": lambda name: ("ACK", f"id:{name}"),
    "NACK": lambda name: ("NACK", f"id:{name}"),
    "COMMIT": lambda name: ("COMMIT", "transaction:t"),
    "UNSUBSCRIBE": lambda name: ("UNSUBSCRIBE", "id:1"),
    "UNSUBSCRIBE for good": lambda name: ("UNSUBSCRIBE", "id:durable", "durable:true"),
    "durable SUBSCRIBE": lambda name: ("SUBSCRIBE", "id:2", "destination:/topic/t", "durable-subscription-name:n"),
}
#: Frames whose receipt says only that they were understood.
ANSWERS = {
    "SEND that need not last": lambda name: ("SEND", "destination:/queue/c", "persistent:false"),
    "SEND in a transaction": lambda name: ("SEND", "destination:/queue/c", "transaction:t"),
    "ACK in a transaction": lambda name: ("ACK", f"id:{name}", "transaction:t"),
    "SUBSCRIBE": lambda name: ("SUBSCRIBE", "id:2", "destination:/queue/c"),
    "browser": lambda name: ("SUBSCRIBE", "id:2", "destination:/queue/c", "browser:true"),
    "BEGIN": lambda name: ("BEGIN", "transaction:u"),
    "ABORT": lambda name: ("ABORT", "transaction:t"),
}
Said = Callable[[str], tuple[str, ...]]


@pytest.mark.parametrize("said", PROMISES.values(), ids=PROMISES.keys())
async def test_a_promise_waits_for_the_disk(held_world: World, store: HeldStore, said: Said) -> None:
    """While the disk is busy there is no receipt, and then there is."""
    peer, name = await ready(held_world)
    store.hold()
    await peer.say(*said(name), "receipt:r")
    assert not any(one.command == "RECEIPT" for one in peer.frames)
    store.let_go()
    await peer.receipt("r")


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_does_not_wait(held_world: World, store: HeldStore, said: Said) -> None:
    """Where nothing is promised nobody is kept waiting."""
    peer, name = await ready(held_world)
    store.hold()
    await peer.say("SEND", "destination:/queue/c")
    await peer.say(*said(name), "receipt:r")
    assert [one.headers.get("receipt-id") for one in peer.frames if one.command == "RECEIPT"] == ["r"]


async def test_messages_do_not_wait_for_the_disk(held_world: World, store: HeldStore) -> None:
    """They may be handed out before they are safe; only nobody is told that they are."""
    peer = held_world.peer()
    await peer.take_from("/queue/a", ack="auto")
    store.hold()
    await peer.say("SEND", "destination:/queue/a", "receipt:r", body=b"x")
    assert peer.bodies() == ["x"]


async def test_a_new_durable_subscriber_gets_nothing_before_its_receipt(held_world: World, store: HeldStore) -> None:
    """Its backlog waits as long as the disk does, and longer if the peer does not read meanwhile."""
    publisher, peer = held_world.peer(), held_world.peer()
    held_world.set_topic("t", retain_count=10)
    await publisher.receipt_of("SEND", "destination:/topic/t", body=b"x")
    for ident in ("reads", "does not read"):
        store.hold()
        await peer.take_from("/topic/t", "durable:true", "from-seq:0", "receipt:r", ident=ident, ack="auto")
        peer.session.hold_back()
        if ident == "reads":
            peer.session.go_on()
        await held_world.quiet()
        assert peer.frames == []
        store.let_go()
        await peer.receipt("r")
        await publisher.receipt_of("SEND", "destination:/queue/b")
        assert peer.bodies() == (["x"] if ident == "reads" else [])
    peer.session.go_on()
    await held_world.quiet()
    assert peer.bodies() == ["x"]


async def test_who_is_leaving_is_handed_nothing_more(held_world: World, store: HeldStore) -> None:
    """Its end waits for the disk, and it may read again meanwhile; what came to others did not fail once."""
    leaving, publisher = held_world.peer(), held_world.peer()
    await leaving.take_from("/queue/a")
    store.hold()
    await publisher.publish("/queue/b", "for the disk")
    leaving.tell("DISCONNECT", "receipt:r")
    leaving.session.hold_back()
    leaving.session.go_on()
    await publisher.publish("/queue/a", "x")
    assert leaving.frames == []
    store.let_go()
    await leaving.closed()
    await publisher.take_from("/queue/a")
    assert publisher.take().headers["delivery-count"] == "1"


async def test_what_waits_for_the_disk_is_counted(held_world: World, store: HeldStore) -> None:
    """So that nothing more is read from those who send faster than it can follow."""
    peer = held_world.peer()
    store.hold()
    await peer.say("SEND", "destination:/queue/a")
    assert not held_world.runtime.is_behind()
    await peer.say("SEND", "destination:/queue/a", body=b"x" * (9 * 2**20))
    assert held_world.runtime.is_behind()
    store.let_go()
    await peer.receipt_of("SEND", "destination:/queue/a")
    for _ in range(4):
        peer.tell("SEND", "destination:/queue/a", "receipt:r", body=b"x" * (3 * 2**20))
        assert not held_world.runtime.is_behind()
        await peer.receipt("r")


async def test_disconnect_waits_for_all_that_was_confirmed_before_it(held_world: World, store: HeldStore) -> None:
    """Its receipt is the last thing that comes, and then the connection is closed."""
    peer, other = held_world.peer(), held_world.peer()
    await peer.take_from("/queue/b")
    store.hold()
    last = frame("SEND", "destination:/queue/a", "receipt:s") + frame("DISCONNECT", "receipt:d")
    late = frame("SEND", "destination:/queue/a", "receipt:late")
    peer.session.receive(last + late)
    peer.session.receive(late)
    await other.publish("/queue/b", "x")
    assert (peer.frames, peer.is_open) == ([], True)
    store.let_go()
    await peer.closed()
    assert [one.headers["receipt-id"] for one in peer.frames] == ["s", "d"]
    assert (held_world.length("a"), held_world.length("b")) == (1, 1)


async def test_nothing_is_sent_to_who_has_gone_meanwhile(held_world: World, store: HeldStore) -> None:
    """Neither receipts nor the answer to DISCONNECT find anybody."""
    sender, leaver, staying = (held_world.peer() for _ in range(3))
    store.hold()
    for peer in (sender, leaver, staying):
        await peer.say("SEND", "destination:/queue/a", "receipt:s")
    await leaver.say("DISCONNECT", "receipt:d")
    await sender.vanish()
    await leaver.vanish()
    store.let_go()
    await staying.receipt("s")
    assert (sender.frames, leaver.frames) == ([], [])


async def test_disconnect_without_a_receipt_closes_too(world: World) -> None:
    """Old programs do not wait for anything."""
    peer = world.peer()
    await peer.say("DISCONNECT")
    assert (peer.frames, peer.is_open) == ([], False)


async def test_receipts_come_in_the_order_of_their_frames(world: World) -> None:
    """Those of one kind; a receipt is escaped like every header."""
    peer = world.peer()
    names = ["1", "a:b", "\\", "line\nend", "ü"]
    for name in names:
        escaped = name.replace("\\", "\\\\").replace(":", "\\c").replace("\n", "\\n")
        peer.tell("SEND", "destination:/queue/a", f"receipt:{escaped}")
    await world.quiet()
    assert [one.headers["receipt-id"] for one in peer.frames] == names


async def test_after_an_error_nothing_is_confirmed(world: World) -> None:
    """What was sent in the same piece may have been done, but nobody is told so."""
    peer = world.peer()
    peer.session.receive(frame("SEND", "destination:/queue/a", "receipt:s") + frame("ACK", "id:none", "receipt:a"))
    await world.quiet()
    assert [one.headers["receipt-id"] for one in peer.frames] == ["a"]
    assert peer.error()


async def test_when_the_disk_is_full_publishers_are_refused_and_consumers_go_on() -> None:
    """A SEND and a COMMIT with one are refused; what is acknowledged, in a transaction too, makes room."""
    store = FullMemory()
    world = World(store)
    await world.start()
    consumer = world.peer()
    await consumer.take_from("/queue/a")
    await consumer.publish("/queue/a", "1", "2")
    first, second = (one.headers["ack"] for one in consumer.messages())
    store.is_full = True
    await consumer.say("ACK", f"id:{first}", "receipt:r")
    await consumer.say("BEGIN", "transaction:t")
    await consumer.say("ACK", f"id:{second}", "transaction:t")
    await consumer.say("COMMIT", "transaction:t", "receipt:c")
    assert [one.headers["receipt-id"] for one in consumer.frames] == ["r", "c"]
    for lines in ((), ("colour:red",), ("transaction:t",)):
        publisher = world.peer()
        publisher.tell("BEGIN", "transaction:t")
        await publisher.say("SEND", "destination:/queue/a", *lines, body=b"3")
        if "transaction:t" in lines:
            await publisher.say("COMMIT", "transaction:t")
        assert "disk is full" in publisher.error().body.decode()
    assert world.length("a") == 0
    await world.stop()


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_when_the_store_fails_everybody_is_told_and_nothing_confirmed(call: str) -> None:
    """A failed write or sync ends all promises: those who wait hear an ERROR, and who comes later too."""
    store = FailingStore(10**9)
    world = World(store)
    await world.start()
    waiting, idle = world.peer(), world.peer()
    await waiting.receipt_of("SEND", "destination:/queue/a", body=b"1")
    store.at = store.calls + (1 if call == "write" else 2)
    store.permanent = True
    waiting.tell("SEND", "destination:/queue/a", "receipt:r", body=b"2")
    await waiting.closed()
    assert [one.command for one in waiting.frames] == ["ERROR"]
    assert idle.error().headers["message"] == "Unavailable"
    for lines in ((), ("colour:red",)):
        late = world.peer()
        await late.say("SEND", "destination:/queue/a", "receipt:r", *lines, body=b"3")
        error = late.error()
        assert (error.headers["message"], error.headers["receipt-id"]) == ("Unavailable", "r")
    await world.stop()
