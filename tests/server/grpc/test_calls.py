"""The calls of the service, over a real channel to a real `penstock serve`."""

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub


async def test_a_message_goes_in_and_comes_out_as_it_was(stub: BrokerAsyncStub) -> None:
    """With all that its publisher said of it."""
    new = pb.NewMessage(queue="whole", tags=["eu", "fast"], body=b"\x00\xff", headers={"Größe": "9 ½"}, priority=7)
    receipt = (await stub.Enqueue(pb.EnqueueRequest(message=new))).receipt
    answer = await stub.Poll(pb.PollRequest(queue="whole"))
    message = answer.message
    assert (message.queue, list(message.tags), message.body) == ("whole", ["eu", "fast"], b"\x00\xff")
    assert (dict(message.headers), message.priority, message.attempt) == ({"Größe": "9 ½"}, 7, 1)
    assert message.sequence == receipt.sequence
    completed = await stub.CompletePoll(pb.CompletePollRequest(lease=answer.lease))
    assert (completed.completed, completed.late) == (True, False)
