"""The calls with one request and one response, over a real channel to a real `penstock serve`."""

import asyncio

import grpc
import pytest

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.server.conftest import Serve
from tests.server.grpc.asking import PATIENCE, complete, enqueue, poll, refused, status
from tests.server.grpc.conftest import Connect


async def test_a_message_goes_in_and_comes_out_as_it_was(stub: BrokerAsyncStub) -> None:
    """With all that its publisher said of it."""
    sequence = await enqueue(stub, "whole", b"\x00\xff", tags=["fast", "eu"], headers={"Größe": "9 ½"}, priority=7)
    answer = await poll(stub, "whole")
    message = answer.message
    assert (message.queue, list(message.tags), message.body) == ("whole", ["eu", "fast"], b"\x00\xff")
    assert (dict(message.headers), message.priority, message.attempt) == ({"Größe": "9 ½"}, 7, 1)
    assert (message.sequence, message.shard, message.redelivered) == (sequence, 0, False)
    assert await complete(stub, answer.lease) == (True, False)
    state = await status(stub, "whole", "eu", "fast")
    assert (state.ready, state.assigned, state.totals["finished"]) == (0, 0, 1)


async def test_a_body_may_be_larger_than_the_library_takes_by_default(stub: BrokerAsyncStub) -> None:
    """Which is 4 MiB."""
    assert await enqueue(stub, "large", bytes(6 * 2**20))
    assert (await status(stub, "large")).bytes == 6 * 2**20


async def test_priority_unless_said_is_4_and_0_can_be_said(stub: BrokerAsyncStub) -> None:
    """Higher goes first."""
    for priority in (0, None, 5):
        await enqueue(stub, "priorities", priority=priority)
    assert [(await poll(stub, "priorities")).message.priority for _ in range(3)] == [5, 4, 0]


async def test_completing_again_is_no_error(stub: BrokerAsyncStub) -> None:
    """Of what is settled, was never there, or whose queue was never there."""
    await enqueue(stub, "again")
    lease = (await poll(stub, "again")).lease
    assert await complete(stub, lease) == (True, False)
    assert await complete(stub, lease) == (False, False)
    assert await complete(stub, pb.Lease(queue="again", sequence=999_999)) == (False, False)
    assert await complete(stub, pb.Lease(queue="never there", sequence=1)) == (False, False)


async def test_a_poll_that_finds_nothing_is_no_error(stub: BrokerAsyncStub) -> None:
    """Neither where the queue is empty nor where there is none, nor after waiting."""
    assert not (await poll(stub, "nowhere")).HasField("message")
    assert not (await poll(stub, "nowhere", wait=0.05)).HasField("message")


async def test_a_poll_waits_for_a_queue_that_is_made_meanwhile(stub: BrokerAsyncStub) -> None:
    """And is answered at the moment when there is a message."""
    waiting = asyncio.ensure_future(poll(stub, "to come", wait=PATIENCE))
    while not waiting.done():
        await enqueue(stub, "to come", b"x")
    assert (await waiting).message.body == b"x"


async def test_tags_choose(stub: BrokerAsyncStub) -> None:
    """Not set, empty, and by each way to match."""
    for tags in ([], ["a"], ["a", "b"]):
        await enqueue(stub, "tagged", b",".join(tag.encode() for tag in tags), tags=tags)
    assert (await poll(stub, "tagged", tags=pb.Tags())).message.body == b""
    assert not (await poll(stub, "tagged", tags=pb.Tags())).HasField("message")
    assert (await poll(stub, "tagged", tags=pb.Tags(tags=["a"]))).message.body == b"a"
    assert not (await poll(stub, "tagged", tags=pb.Tags(tags=["b"]))).HasField("message")
    assert (await poll(stub, "tagged", tags=pb.Tags(tags=["b"]), match=pb.MATCH_STRICT)).message.body == b"a,b"


async def test_a_selector_chooses(stub: BrokerAsyncStub) -> None:
    """By headers."""
    await enqueue(stub, "chosen", b"1", headers={"colour": "blue"})
    await enqueue(stub, "chosen", b"2", headers={"colour": "red"})
    assert (await poll(stub, "chosen", selector="colour = 'red'")).message.body == b"2"


async def test_a_failure_counts_and_a_release_does_not(stub: BrokerAsyncStub) -> None:
    """What was failed often enough, or rejected, is a dead letter with its reason."""
    settings = pb.QueueSettings(retry_limit=2)
    await stub.CreateQueue(pb.CreateQueueRequest(queue="failing", settings=settings))
    await enqueue(stub, "failing")
    for attempt in (1, 1, 2):
        answer = await poll(stub, "failing")
        assert answer.message.attempt == attempt
        if attempt == 1 and not answer.message.redelivered:
            await stub.Release(pb.ReleaseRequest(lease=answer.lease))
        else:
            await stub.Fail(pb.FailRequest(lease=answer.lease, reason="too warm"))
    await enqueue(stub, "failing")
    await stub.Fail(pb.FailRequest(lease=(await poll(stub, "failing")).lease, reject=True))
    headers = [dict((await poll(stub, "DLQ.failing")).message.headers) for _ in range(2)]
    assert [(one["death-reason"], one["death-count"]) for one in headers] == [("too warm", "1"), ("rejected", "1")]


async def test_dedup_ids_keys_and_delays_count(stub: BrokerAsyncStub) -> None:
    """The second of a dedup id is the first; a key replaces what waits; a delay keeps back."""
    new = pb.NewMessage(queue="careful", body=b"1", dedup_id="d")
    first, second = [(await stub.Enqueue(pb.EnqueueRequest(message=new))).receipt for _ in range(2)]
    assert (first.sequence, first.duplicate, second.duplicate) == (second.sequence, False, True)
    await enqueue(stub, "keyed", b"old", key="k")
    await enqueue(stub, "keyed", b"new", key="k", delay=3600)
    state = await status(stub, "keyed")
    assert (state.ready, state.delayed) == (0, 1)
    assert not (await poll(stub, "keyed")).HasField("message")


async def test_who_lost_a_message_cannot_settle_it(stub: BrokerAsyncStub, served: object, connect: Connect) -> None:
    """Neither by the lease of an earlier handing-out, nor when it waits again after being released."""
    await enqueue(stub, "stale")
    old = (await poll(stub, "stale")).lease
    await stub.Release(pb.ReleaseRequest(lease=old))
    lost = (grpc.StatusCode.FAILED_PRECONDITION, "NotAssigned")
    assert (await refused(stub.CompletePoll(pb.CompletePollRequest(lease=old))))[:2] == lost
    new = (await poll(stub, "stale")).lease
    assert (new.attempt, new.number) == (old.attempt, old.number + 1)
    for call in (
        stub.CompletePoll(pb.CompletePollRequest(lease=old)),
        stub.Fail(pb.FailRequest(lease=old)),
        stub.Release(pb.ReleaseRequest(lease=old)),
        stub.KeepAlive(pb.KeepAliveRequest(lease=old)),
    ):
        assert (await refused(call))[:2] == lost
    assert await complete(stub, new) == (True, False)


async def test_a_lease_without_a_number_means_what_the_user_has_now(stub: BrokerAsyncStub) -> None:
    """So that people can settle by hand."""
    sequence = await enqueue(stub, "by hand")
    await poll(stub, "by hand")
    assert await complete(stub, pb.Lease(queue="by hand", sequence=sequence)) == (True, False)


async def test_a_lease_that_ran_out_can_be_completed_late_until_somebody_has_the_message(stub: BrokerAsyncStub) -> None:
    """The sweeper puts it back within its second; a late completion counts, and says so."""
    await enqueue(stub, "late")
    lease = (await poll(stub, "late", work_timeout=0.01)).lease
    while not (await status(stub, "late")).ready:  # the broker's own clock goes on meanwhile
        pass
    assert await complete(stub, lease) == (True, True)

    await enqueue(stub, "late")
    lease = (await poll(stub, "late", work_timeout=0.01)).lease
    other = await poll(stub, "late", wait=PATIENCE)
    assert (other.message.attempt, other.message.redelivered) == (2, True)
    assert (await refused(stub.CompletePoll(pb.CompletePollRequest(lease=lease))))[1] == "NotAssigned"


async def test_leases_are_started_anew(stub: BrokerAsyncStub) -> None:
    """One, or all that the user has."""
    await enqueue(stub, "kept")
    lease = (await poll(stub, "kept")).lease
    assert (await stub.KeepAlive(pb.KeepAliveRequest(lease=lease))).count == 1
    assert (await stub.KeepAlive(pb.KeepAliveRequest())).count >= 1


async def test_queues_are_made_and_deleted(stub: BrokerAsyncStub) -> None:
    """With settings, of which none at all can be said too."""
    request = pb.CreateQueueRequest(
        queue="made", tags=["b", "a"], settings=pb.QueueSettings(retry_limit=0, heartbeat_timeout=5, dead_letter="")
    )
    assert [(await stub.CreateQueue(request)).created for _ in range(2)] == [True, False]
    state = await status(stub, "made", "a", "b")
    assert (state.settings.retry_limit, state.settings.heartbeat_timeout, state.settings.dead_letter) == (0, 5.0, "")
    assert (state.settings.HasField("retry_limit"), state.HasField("oldest_age_seconds")) == (True, False)
    await enqueue(stub, "made", tags=["a", "b"])
    assert (await stub.DeleteQueue(pb.DeleteQueueRequest(queue="made", tags=["a", "b"]))).messages == 1
    assert (await refused(status(stub, "made", "a", "b")))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_topic_tells_its_state(stub: BrokerAsyncStub) -> None:
    """It is made by the first message."""
    await stub.Enqueue(pb.EnqueueRequest(message=pb.NewMessage(topic="news", body=b"x")))
    state = (await stub.GetStatus(pb.GetStatusRequest(topic="news"))).topic
    assert (state.topic, state.totals["published"], list(state.subscribers)) == ("news", 1, [])


REFUSALS = [
    ("Enqueue", pb.EnqueueRequest(), "INVALID_ARGUMENT", "BadRequest", "queue"),
    ("Enqueue", pb.EnqueueRequest(message=pb.NewMessage(queue="q", ttl=-1)), "INVALID_ARGUMENT", "BadRequest", "ttl"),
    ("Enqueue", pb.EnqueueRequest(message=pb.NewMessage(topic="t", key="k")), "INVALID_ARGUMENT", "BadRequest", "key"),
    (
        "Enqueue",
        pb.EnqueueRequest(message=pb.NewMessage(topic="t", tags=["a"])),
        "INVALID_ARGUMENT",
        "BadRequest",
        "tags",
    ),
    (
        "Enqueue",
        pb.EnqueueRequest(message=pb.NewMessage(queue="q"), confirm=9),
        "INVALID_ARGUMENT",
        "BadRequest",
        "confirm",
    ),
    ("Poll", pb.PollRequest(queue="a\0"), "INVALID_ARGUMENT", "BadRequest", "queue"),
    ("Poll", pb.PollRequest(queue="q", match=9), "INVALID_ARGUMENT", "BadRequest", "match"),
    ("Poll", pb.PollRequest(queue="q", wait=float("nan")), "INVALID_ARGUMENT", "BadRequest", "wait"),
    ("Poll", pb.PollRequest(queue="q", work_timeout=0), "INVALID_ARGUMENT", "BadRequest", "work_timeout"),
    ("Poll", pb.PollRequest(queue="q", selector="("), "INVALID_ARGUMENT", "BadRequest", "selector"),
    ("CompletePoll", pb.CompletePollRequest(), "INVALID_ARGUMENT", "BadRequest", "lease"),
    ("Fail", pb.FailRequest(lease=pb.Lease(queue="q", sequence=1)), "NOT_FOUND", "NoObject", "queue"),
    ("Release", pb.ReleaseRequest(lease=pb.Lease(queue="q", shard=1)), "NOT_FOUND", "NoObject", "lease.shard"),
    ("KeepAlive", pb.KeepAliveRequest(lease=pb.Lease(queue="q")), "NOT_FOUND", "NoObject", "queue"),
    ("CreateQueue", pb.CreateQueueRequest(queue=""), "INVALID_ARGUMENT", "BadRequest", "queue"),
    ("DeleteQueue", pb.DeleteQueueRequest(queue="q"), "NOT_FOUND", "NoObject", "queue"),
    ("GetStatus", pb.GetStatusRequest(), "INVALID_ARGUMENT", "BadRequest", "queue"),
    ("GetStatus", pb.GetStatusRequest(topic="t"), "NOT_FOUND", "NoObject", "topic"),
]


@pytest.mark.parametrize(("method", "request_", "code", "error", "key"), REFUSALS)
async def test_what_cannot_be_is_refused(
    stub: BrokerAsyncStub, method: str, request_: object, code: str, error: str, key: str
) -> None:
    """By a status that fits; the error's code and key stand in the trailing metadata."""
    assert await refused(getattr(stub, method)(request_, timeout=PATIENCE)) == (grpc.StatusCode[code], error, key)


async def test_a_queue_that_is_to_be_new_may_not_exist(stub: BrokerAsyncStub) -> None:
    """If it is made exclusively."""
    request = pb.CreateQueueRequest(queue="exclusive", exclusive=True)
    assert (await stub.CreateQueue(request)).created
    assert (await refused(stub.CreateQueue(request)))[:2] == (grpc.StatusCode.ALREADY_EXISTS, "ObjectAlreadyExists")


async def test_what_is_too_much_is_refused(serve: Serve, connect: Connect) -> None:
    """A body, a request as a whole, and a message for which the queue has no room; missing queues are not made."""
    stub = connect(serve("--limit", "body_bytes_max=1KiB", "--no-auto-create"))
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await refused(enqueue(stub, "q")))[:2] == (grpc.StatusCode.NOT_FOUND, "NoObject")
    await stub.CreateQueue(pb.CreateQueueRequest(queue="q", settings=pb.QueueSettings(max_length=1)))
    assert await refused(enqueue(stub, "q", bytes(1025))) == (exhausted, "TooLarge", "body")
    assert (await refused(enqueue(stub, "q", bytes(5 * 2**20))))[0] is exhausted
    await enqueue(stub, "q", bytes(1024))
    assert (await refused(enqueue(stub, "q")))[:2] == (exhausted, "QueueFull")
