"""Transactions over STOMP: all of it happens at COMMIT or none, and ABORT gives nothing back."""

from collections.abc import Sequence

import pytest

from penstock.model.limits import Limits
from penstock.model.records import Kind, Record
from penstock.store.memory import Memory
from tests.protocols.stomp.peers import Peer, World, frame
from tests.protocols.stomp.test_acknowledging import naming
from tests.stomp_wire import Frame

VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


class BatchMemory(Memory):
    """Remembers which kinds of records came in one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        super().write(first, records, gone)
        self.batches.append([record[0] for record in records])


async def with_work(world: World, version: str = "1.2", *, count: int = 1, ack: str = "client-individual") -> Peer:
    """Return somebody who has begun the transaction `t`, and holds messages of the queue `in`."""
    peer = world.peer(version)
    await peer.take_from("/queue/in", ack=ack)
    await peer.publish("/queue/in", *[str(number) for number in range(count)])
    await peer.say("BEGIN", "transaction:t")
    return peer


async def acknowledge(peer: Peer, message: Frame, version: str = "1.2") -> None:
    """Acknowledge a message in the transaction."""
    await peer.say("ACK", *naming(version, message), "transaction:t")


@VERSIONS
async def test_nothing_happens_before_commit_and_all_at_it(world: World, version: str) -> None:
    """SEND, ACK and, where there is one, NACK; to queues, to topics, with every header of a SEND."""
    peer = await with_work(world, version, count=2)
    done, failed = peer.messages()
    other = world.peer()
    await other.take_from("/topic/out", ack="auto")
    await acknowledge(peer, done, version)
    if version != "1.0":
        await peer.say("NACK", *naming(version, failed), "transaction:t", "requeue:false")
    await peer.publish("/queue/out", "low", headers=["transaction:t", "priority:1"])
    await peer.publish("/queue/out", "high", headers=["transaction:t", "priority:9", "colour:red"])
    await peer.publish("/topic/out", "x", headers=["transaction:t"])
    assert (world.length("in"), world.length("out"), other.frames, peer.frames) == (2, 0, [], [])
    await peer.say("COMMIT", "transaction:t")
    assert (world.length("in"), world.length("DLQ.in")) == ((1, 0) if version == "1.0" else (0, 1))
    assert other.bodies() == ["x"]
    await other.take_from("/queue/out", ident="2", ack="auto")
    high, low = other.messages()
    assert (high.body, low.body, high.headers["colour"]) == (b"high", b"low", "red")
    assert "transaction" not in high.headers


async def test_it_is_one_batch_of_the_log() -> None:
    """So that a crash leaves all of it or nothing."""
    store = BatchMemory()
    world = World(store)
    await world.start()
    peer = await with_work(world, count=2)
    first, second = peer.messages()
    await acknowledge(peer, first)
    await peer.publish("/queue/out", "x", headers=["transaction:t"])
    await peer.say("NACK", *naming("1.2", second), "transaction:t")
    store.batches.clear()
    await peer.say("COMMIT", "transaction:t")
    assert {Kind.FINISH, Kind.FAIL, Kind.PUBLISH} <= set(store.batches[0])
    await world.stop()


@VERSIONS
@pytest.mark.parametrize("ack", ["client-individual", "client"])
async def test_after_abort_its_messages_are_still_in_work(world: World, version: str, ack: str) -> None:
    """They are held by the same consumer, and can be acknowledged again; nothing was sent."""
    peer = await with_work(world, version, count=3, ack=ack)
    messages = peer.messages()
    other = world.peer()
    await other.take_from("/queue/in", ack="auto")
    await peer.publish("/queue/out", "x", headers=["transaction:t"])
    await acknowledge(peer, messages[1], version)
    await peer.say("ABORT", "transaction:t")
    assert (world.length("in"), world.length("out"), other.frames) == (3, 0, [])
    await peer.say("ACK", *naming(version, messages[1]))
    assert world.length("in") == (1 if ack == "client" else 2)
    await peer.say("ACK", *naming(version, messages[2]))
    assert (world.length("in"), peer.is_open) == (0 if ack == "client" else 1, True)


@VERSIONS
async def test_after_abort_its_messages_stand_in_their_order(world: World, version: str) -> None:
    """In mode `client` an ACK of one means again those before it, whichever way they were acknowledged before."""
    peer = await with_work(world, version, count=4, ack="client")
    messages = peer.messages()
    for message in messages[:3]:
        await acknowledge(peer, message, version)
    await peer.say("ABORT", "transaction:t")
    await peer.say("ACK", *naming(version, messages[1]))
    assert world.length("in") == 2
    await peer.say("ACK", *naming(version, messages[3]))
    assert (world.length("in"), peer.is_open) == (0, True)


async def test_after_abort_what_was_unsubscribed_from_waits_again(world: World) -> None:
    """Uncounted, as UNSUBSCRIBE gives it back; what another subscription holds stays in work."""
    peer = await with_work(world)
    await peer.take_from("/queue/other", ident="2")
    await peer.publish("/queue/other", "x")
    for message in peer.messages():
        await acknowledge(peer, message)
    await peer.say("UNSUBSCRIBE", "id:1")
    await peer.say("ABORT", "transaction:t")
    other = world.peer()
    await other.take_from("/queue/in")
    await other.take_from("/queue/other", ident="2")
    (again,) = other.messages()
    assert (again.body, again.headers["redelivered"], again.attempt) == (b"0", "true", 1)


async def test_an_ack_of_what_is_no_longer_held_refuses_the_whole(world: World) -> None:
    """Its lease ended before COMMIT: nothing is sent, nothing else is settled."""
    peer = world.peer()
    await peer.take_from("/queue/in", "work-timeout:5")
    await peer.publish("/queue/in", "stale")
    stale = peer.take()
    await world.wait(3.0)
    await peer.publish("/queue/in", "fresh")
    fresh = peer.take()
    await peer.say("BEGIN", "transaction:t")
    await acknowledge(peer, fresh)
    await acknowledge(peer, stale)
    await peer.publish("/queue/out", "x", headers=["transaction:t"])
    await world.wait(2.5)
    peer.frames.clear()
    await peer.say("COMMIT", "transaction:t", "receipt:c")
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("NotAssigned", "c")
    assert (world.length("in"), world.length("out")) == (2, 0)


async def test_a_full_queue_refuses_the_whole(world: World) -> None:
    """Also when only the second of two messages is too many."""
    world.set_queue("out", max_length=1)
    peer = await with_work(world)
    await acknowledge(peer, peer.take())
    await peer.publish("/topic/t", "x", headers=["transaction:t"])
    await peer.publish("/queue/out", "1", "2", headers=["transaction:t"])
    await peer.say("COMMIT", "transaction:t")
    assert peer.error().headers["message"] == "QueueFull"
    assert (world.length("in"), world.length("out")) == (1, 0)
    assert "t" not in world.runtime.engine.channels.topics


async def test_what_is_acknowledged_makes_room_for_what_is_sent(world: World) -> None:
    """A full queue takes the answer to one of its own messages."""
    world.set_queue("in", max_length=1)
    peer = await with_work(world)
    await acknowledge(peer, peer.take())
    await peer.publish("/queue/in", "next", headers=["transaction:t"])
    await peer.say("COMMIT", "transaction:t")
    assert peer.bodies() == ["next"]


async def test_a_connection_lost_before_commit_leaves_nothing(world: World) -> None:
    """What it held comes again to others, and what it would have sent is nowhere."""
    peer = await with_work(world)
    await acknowledge(peer, peer.take())
    await peer.publish("/queue/out", "x", headers=["transaction:t"])
    await peer.vanish()
    other = world.peer()
    await other.take_from("/queue/in", ack="auto")
    assert (other.bodies(), world.length("out")) == (["0"], 0)


async def test_acknowledged_twice_in_one_transaction_is_refused(world: World) -> None:
    """Within a transaction a message is acknowledged once; the second is a mistake at once."""
    peer = await with_work(world)
    message = peer.take()
    await acknowledge(peer, message)
    await acknowledge(peer, message)
    assert peer.error().headers["message"] == "NoObject"
    assert world.length("in") == 1


async def test_transactions_go_side_by_side(world: World) -> None:
    """Each with its own name; after its end a name may begin another."""
    peer = world.peer()
    for name in ("a", "b"):
        await peer.say("BEGIN", f"transaction:{name}")
        await peer.publish("/queue/out", name, headers=[f"transaction:{name}"])
    await peer.say("COMMIT", "transaction:b")
    await peer.say("ABORT", "transaction:a")
    await peer.say("BEGIN", "transaction:a")
    await peer.publish("/queue/out", "again", headers=["transaction:a"])
    await peer.say("COMMIT", "transaction:a")
    await peer.take_from("/queue/out", ack="auto")
    assert peer.bodies() == ["b", "again"]


async def test_receipts_in_a_transaction_do_not_wait_for_its_end(world: World) -> None:
    """They say that the frame was understood; only that of COMMIT promises something."""
    peer = await with_work(world)
    message = peer.take()
    await peer.say("SEND", "destination:/queue/out", "transaction:t", "receipt:send")
    await peer.say("ACK", *naming("1.2", message), "transaction:t", "receipt:ack")
    assert [one.headers["receipt-id"] for one in peer.frames] == ["send", "ack"]
    assert world.length("out") == 0


async def test_one_begun_twice_is_refused(world: World) -> None:
    """The name would not say which is meant."""
    peer = await with_work(world)
    peer.frames.clear()
    await peer.say("BEGIN", "transaction:t")
    assert "already" in peer.error().body.decode()


async def test_a_connection_may_have_so_many(world: World) -> None:
    """Sixteen at a time; one that ended makes room."""
    peer = world.peer()
    for number in range(16):
        await peer.say("BEGIN", f"transaction:{number}")
    await peer.say("COMMIT", "transaction:3")
    await peer.say("BEGIN", "transaction:16")
    assert peer.is_open
    await peer.say("BEGIN", "transaction:17")
    assert peer.error().headers["message"] == "TooLarge"


@pytest.mark.parametrize("limit", ["transaction_operations_max", "transaction_bytes_max"])
async def test_a_transaction_has_its_limits(limit: str) -> None:
    """Operations and bytes wait in memory until COMMIT; what is one too many is told at once."""
    world = World(limits=Limits(**{limit: 3}))
    await world.start()
    peer = world.peer()
    peer.session.receive(
        frame("BEGIN", "transaction:t") + frame("SEND", "destination:/queue/a", "transaction:t", body=b"x") * 3
    )
    assert peer.is_open
    await peer.publish("/queue/a", "x", headers=["transaction:t"])
    error = peer.error()
    assert (error.headers["message"], limit.split("_")[1] in error.body.decode()) == ("TooLarge", True)
    await world.stop()


async def test_what_must_be_there_is_asked_for_when_it_is_sent(world: World) -> None:
    """A SEND to a missing `/amq/queue/` is refused before COMMIT."""
    peer = await with_work(world)
    peer.frames.clear()
    await peer.say("SEND", "destination:/amq/queue/missing", "transaction:t")
    assert peer.error().headers["message"] == "NoObject"


async def test_an_empty_transaction_is_committed(world: World) -> None:
    """Nothing to do is done."""
    peer = world.peer()
    await peer.say("BEGIN", "transaction:t")
    await peer.say("COMMIT", "transaction:t", "receipt:c")
    assert peer.take().headers["receipt-id"] == "c"


async def test_what_a_transaction_publishes_counts_against_the_store(world: World) -> None:
    """When it is committed, and by its size: publishers are held back by what waits to be written."""
    peer = world.peer()
    peer.tell("BEGIN", "transaction:t")
    peer.tell("SEND", "destination:/queue/a", "transaction:t", body=b"x" * 1000)
    assert world.runtime.backlog_bytes == 0
    peer.tell("COMMIT", "transaction:t")
    assert world.runtime.backlog_bytes == 1000
    await world.quiet()
    assert world.runtime.backlog_bytes == 0


async def test_all_transactions_of_a_connection_share_the_bytes_of_one() -> None:
    """Headers count too: what is never committed stays in memory as long as the connection does."""
    world = World(limits=Limits(transaction_bytes_max=1000))
    await world.start()
    peer = world.peer()
    for name in ("s", "t"):
        await peer.say("BEGIN", f"transaction:{name}")
    for name, size in (("s", 500), ("t", 400)):
        await peer.say("SEND", "destination:/queue/a", f"transaction:{name}", body=b"x" * size)
    await peer.say("COMMIT", "transaction:s")
    await peer.say("SEND", "destination:/queue/a", "transaction:t", body=b"x" * 500)
    assert peer.is_open
    await peer.say("SEND", "destination:/queue/a", "transaction:t", "colour:" + "x" * 100)
    assert peer.error().headers["message"] == "TooLarge"
    await world.stop()
