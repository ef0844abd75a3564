"""Streams of batches: publishing, handing out and settling, over a real channel to a real `penstock serve`."""

import asyncio

import grpc

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.grpc.asking import PATIENCE, Working, enqueue, numbers, poll, publish_batch, refused, status
from tests.server.grpc.conftest import Connect


def batch(queue: str, *bodies: bytes) -> pb.EnqueueStreamRequest:
    """Return a request that publishes messages to a queue."""
    return pb.EnqueueStreamRequest(queue=queue, messages=[pb.NewMessage(body=body) for body in bodies])


async def test_batches_are_confirmed_in_their_order(stub: BrokerAsyncStub) -> None:
    """Each by one response, with a number for each message, whatever it waits for."""
    levels = [pb.CONFIRM_SYNC, pb.CONFIRM_READY, pb.CONFIRM_WRITE, pb.CONFIRM_UNSPECIFIED]
    requests = [
        pb.EnqueueStreamRequest(queue="ordered", confirm=level, messages=[pb.NewMessage(body=b"%d" % at)] * (at + 1))
        for at, level in enumerate(levels)
    ]
    responses = [response async for response in stub.EnqueueStream(iter(requests), timeout=PATIENCE)]
    assert [len(response.sequences) for response in responses] == [1, 2, 3, 4]
    sequences = [sequence for response in responses for sequence in response.sequences]
    assert sequences == sorted(set(sequences))
    assert (await status(stub, "ordered")).ready == 10


async def test_a_message_of_a_batch_stands_for_itself(stub: BrokerAsyncStub) -> None:
    """One that is refused is named, and keeps no other from being published; so is one that was known."""
    messages = [
        pb.NewMessage(body=b"1", dedup_id="same"),
        pb.NewMessage(body=b"2", ttl=-1),
        pb.NewMessage(body=b"3", dedup_id="same"),
        pb.NewMessage(queue="elsewhere", body=b"4"),
    ]
    response = await publish_batch(stub, pb.EnqueueStreamRequest(queue="parts", messages=messages))
    assert (response.sequences[0], response.sequences[1]) == (response.sequences[2], 0)
    assert list(response.duplicates) == [2]
    [refusal] = response.refusals
    assert (refusal.place, refusal.code, refusal.key) == (1, "BadRequest", "ttl")
    assert ((await status(stub, "parts")).ready, (await status(stub, "elsewhere")).ready) == (1, 1)


async def test_what_was_published_before_nonsense_is_confirmed(stub: BrokerAsyncStub) -> None:
    """Then the stream ends with the error."""
    call = stub.EnqueueStream(timeout=PATIENCE)
    await call.write(batch("before", b"1"))
    await call.write(pb.EnqueueStreamRequest(queue="before", tags=["a,b"], messages=[pb.NewMessage()]))
    response = await call.read()
    assert isinstance(response, pb.EnqueueStreamResponse)
    assert len(response.sequences) == 1
    assert (await refused(call.read()))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "BadRequest")


async def test_messages_come_as_they_are_published_and_are_settled_in_batches(stub: BrokerAsyncStub) -> None:
    """An answer to settlements comes when they are on disk."""
    work = await Working(stub, pb.Subscription(queue="flow")).begin()
    await publish_batch(stub, batch("flow", *(b"%d" % at for at in range(10))))
    messages = await work.take(10)
    assert [message.body for message in messages] == [b"%d" % at for at in range(10)]
    sequences = numbers(messages)
    settled = await work.say(
        label=7, complete=sequences[:5], release=sequences[5:6], fail=[pb.Failure(sequence=sequences[6], reject=True)]
    )
    assert (settled.label, list(settled.late), list(settled.refusals)) == (7, [], [])
    [again] = await work.take(1)
    assert (again.sequence, again.attempt, again.redelivered) == (sequences[5], 1, True)
    state = await status(stub, "flow")
    assert (state.assigned, state.totals["finished"], state.totals["dead_lettered"]) == (4, 5, 1)
    assert (await work.say(keep_alive=sequences[7:8], keep_all_alive=True)).label == 1


async def test_settlements_that_are_refused_are_named(stub: BrokerAsyncStub) -> None:
    """Without a label too; all others of the request count."""
    work = await Working(stub, pb.Subscription(queue="wrong")).begin()
    sequence = await enqueue(stub, "wrong")
    await work.take(1)
    await work.call.write(pb.SubscribeRequest(complete=[sequence, sequence, 12345], release=[1], keep_alive=[2]))
    settled = await work.answer()
    assert [(one.sequence, one.code) for one in settled.refusals] == [
        (sequence, "NoObject"), (12345, "NoObject"), (1, "NoObject"), (2, "NoObject")
    ]  # fmt: skip
    assert (await status(stub, "wrong")).totals["finished"] == 1


async def test_more_refusals_than_clients_take_at_once_come_one_after_the_other(stub: BrokerAsyncStub) -> None:
    """The label comes with the last of them."""
    work = await Working(stub, pb.Subscription(queue="refused")).begin()
    await work.call.write(pb.SubscribeRequest(complete=range(10, 60_010), label=5))
    refusals = []
    label = 0
    while not label:
        settled = await work.answer()
        refusals += [one.sequence for one in settled.refusals]
        label = settled.label
    assert (label, refusals) == (5, [*range(10, 60_010)])


async def test_no_more_are_in_work_than_there_is_credit(stub: BrokerAsyncStub) -> None:
    """It can be changed at any time."""
    work = await Working(stub, pb.Subscription(queue="credit"), credit=2).begin()
    await publish_batch(stub, batch("credit", *[b""] * 10))
    first = await work.take(2)
    assert (await status(stub, "credit")).assigned == 2
    await work.call.write(pb.SubscribeRequest(credit=5))
    await work.take(3)
    assert (await status(stub, "credit")).assigned == 5
    await work.call.write(pb.SubscribeRequest(credit=1))
    await work.say(complete=numbers(first))
    assert ((await status(stub, "credit")).assigned, work.messages) == (3, [])


async def test_less_credit_counts_at_once(stub: BrokerAsyncStub) -> None:
    """Also for somebody who has not used it up."""
    work = await Working(stub, pb.Subscription(queue="less"), credit=10).begin()
    await publish_batch(stub, batch("less", b"1", b"2"))
    await work.take(2)
    await work.say(credit=1)
    await publish_batch(stub, batch("less", b"3"))
    assert (await status(stub, "less")).assigned == 2


async def test_who_leaves_gives_back_without_counting(stub: BrokerAsyncStub) -> None:
    """The stream ends well, after it has told what became of the last settlements."""
    work = await Working(stub, pb.Subscription(queue="half")).begin()
    await publish_batch(stub, batch("half", b"1", b"2"))
    first, _ = await work.take(2)
    await work.call.write(pb.SubscribeRequest(complete=[first.sequence], leave=True, label=3))
    assert (await work.answer()).label == 3
    assert await work.call.code() is grpc.StatusCode.OK
    answer = await poll(stub, "half")
    assert (answer.message.body, answer.message.attempt) == (b"2", 1)


async def test_a_stream_that_ends_fails_what_it_holds(stub: BrokerAsyncStub) -> None:
    """As every connection that is lost, whether it was cancelled or closed."""
    for attempt in (1, 2):
        work = await Working(stub, pb.Subscription(queue="ended")).begin()
        if attempt == 1:
            await enqueue(stub, "ended")
        await work.take(1)
        if attempt == 1:
            work.call.cancel()
        else:
            await work.call.done_writing()
            assert await work.call.code() is grpc.StatusCode.OK
    assert (await poll(stub, "ended", wait=PATIENCE)).message.attempt == 3


async def test_the_first_request_says_what_is_wanted(stub: BrokerAsyncStub) -> None:
    """And no other does; what cannot be had ends the stream."""
    wrong = [
        (pb.SubscribeRequest(), "subscription"),
        (pb.SubscribeRequest(subscription=pb.Subscription()), "queue"),
        (pb.SubscribeRequest(subscription=pb.Subscription(queue="q", durable="d")), "durable"),
        (pb.SubscribeRequest(subscription=pb.Subscription(topic="t", tags=pb.Tags())), "tags"),
        (pb.SubscribeRequest(subscription=pb.Subscription(queue="q"), credit=0), "credit"),
    ]
    for request, key in wrong:
        call = stub.Subscribe(iter([request]), timeout=PATIENCE)
        assert await refused(call.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "BadRequest", key)
    work = await Working(stub, pb.Subscription(queue="twice")).begin()
    await work.call.write(pb.SubscribeRequest(subscription=pb.Subscription(queue="twice")))
    assert (await refused(work.call.read()))[2] == "subscription"


async def test_subscribers_of_a_topic_get_all_of_it(stub: BrokerAsyncStub) -> None:
    """A durable one also what was published while it was away; whoever comes by its name takes its place."""
    wanted = pb.Subscription(topic="news.*", durable="archive")
    work = await Working(stub, wanted).begin()
    plain = await Working(stub, pb.Subscription(topic="news.eu")).begin()
    await publish_batch(stub, pb.EnqueueStreamRequest(topic="news.eu", messages=[pb.NewMessage(body=b"1")]))
    for one in (work, plain):
        [message] = await one.take(1)
        assert (message.topic, message.queue, message.body) == ("news.eu", "", b"1")
        await one.say(complete=[message.sequence])
    await work.call.done_writing()
    assert await work.call.code() is grpc.StatusCode.OK
    await publish_batch(stub, pb.EnqueueStreamRequest(topic="news.eu", messages=[pb.NewMessage(body=b"2")]))
    again = await Working(stub, wanted).begin()
    assert [message.body for message in await again.take(1)] == [b"2"]
    other = await Working(stub, wanted).begin()
    assert [message.body for message in await other.take(1)] == [b"2"]
    assert await again.call.code() is not grpc.StatusCode.OK


async def test_a_request_is_no_longer_than_makes_sense(stub: BrokerAsyncStub) -> None:
    """Else the stream ends, and none of it was done."""
    exhausted = (grpc.StatusCode.RESOURCE_EXHAUSTED, "TooLarge")
    many = pb.EnqueueStreamRequest(queue="many", messages=[pb.NewMessage()] * 10_001)
    assert (await refused(publish_batch(stub, many)))[:2] == exhausted
    assert (await refused(status(stub, "many")))[0] is grpc.StatusCode.NOT_FOUND
    work = await Working(stub, pb.Subscription(queue="settled")).begin()
    await work.call.write(pb.SubscribeRequest(complete=range(65_536)))
    assert (await refused(work.call.read()))[:2] == exhausted


async def test_who_does_not_read_gets_no_more_than_the_credit(stub: BrokerAsyncStub, served: Served) -> None:
    """However much there is for it; others go on. When it ends, what it was not sent has not failed."""
    silent = stub.Subscribe(timeout=PATIENCE)
    await silent.write(pb.SubscribeRequest(subscription=pb.Subscription(queue="slow"), credit=20))
    await Working(stub, pb.Subscription(queue="other")).begin()
    for _ in range(8):
        await publish_batch(stub, batch("slow", *[bytes(2**20)] * 4))
    state = await status(stub, "slow")
    assert (state.assigned, state.ready) == (20, 12)
    silent.cancel()
    messages = [(await poll(stub, "slow", wait=PATIENCE)).message for _ in range(32)]
    assert {(one.attempt, one.redelivered) for one in messages} == {(1, False), (1, True), (2, True)}


async def test_a_publisher_who_does_not_read_is_not_read_from_for_ever(stub: BrokerAsyncStub) -> None:
    """It can go on when it has read; each batch is confirmed once."""
    stream = stub.EnqueueStream(timeout=PATIENCE)
    for _ in range(3000):
        await stream.write(batch("unread", b""))
    await stream.done_writing()
    responses = [await stream.read() for _ in range(3000)]
    assert all(isinstance(one, pb.EnqueueStreamResponse) and len(one.sequences) == 1 for one in responses)
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_hundred_subscribers_share_a_queue(stub: BrokerAsyncStub) -> None:
    """Each message goes to one of them."""
    workers = [await Working(stub, pb.Subscription(queue="shared"), credit=10).begin() for _ in range(100)]
    bodies = [b"%d" % at for at in range(1000)]
    taken = asyncio.gather(*(worker.take(10) for worker in workers))
    await publish_batch(stub, batch("shared", *bodies))
    assert sorted(message.body for messages in await taken for message in messages) == sorted(bodies)


async def test_a_response_is_no_larger_than_clients_take(stub: BrokerAsyncStub) -> None:
    """However large the messages are together."""
    work = await Working(stub, pb.Subscription(queue="large")).begin()
    for _ in range(24):
        await publish_batch(stub, batch("large", bytes(2**20), b""))
    assert len(await work.take(48)) == 48


async def test_at_the_end_of_the_broker_all_is_given_back(serve: Serve, connect: Connect) -> None:
    """Streams and polls that wait are told; what was in work waits again and has not failed."""
    served = serve("--store", "journal")
    stub = connect(served)
    await publish_batch(stub, batch("end", b"1", b"2"))
    await poll(stub, "end")
    work = await Working(stub, pb.Subscription(queue="end")).begin()
    await work.take(1)
    await stub.CreateQueue(pb.CreateQueueRequest(queue="nothing"))
    waiting = asyncio.ensure_future(poll(stub, "nothing", wait=PATIENCE))
    while not (await status(stub, "nothing")).consumers:
        pass
    await asyncio.to_thread(served.restart)
    assert (await refused(work.call.read()))[:2] == (grpc.StatusCode.UNAVAILABLE, "Unavailable")
    assert (await refused(waiting))[0] is grpc.StatusCode.UNAVAILABLE
    stub = connect(served)
    messages = [(await poll(stub, "end")).message for _ in range(2)]
    assert sorted((message.body, message.attempt) for message in messages) == [(b"1", 1), (b"2", 1)]
