"""Settlements of messages that were handed out by `Poll`. Each is answered once it is on disk."""

from penstock.engine.port import Outcome, settle
from penstock.model.errors import BadRequest, NoObject
from penstock.model.publication import checked_reason
from penstock.protocols.grpc.callers import Caller
from penstock.v1 import broker_pb2 as pb


def complete(caller: Caller, request: pb.CompletePollRequest, now: float) -> pb.CompletePollResponse:
    """Settle a message with success; one that is settled or unknown is no error."""
    try:
        message = caller.message(_lease(request))
        late = message.cursor.finish(message, now)
    except NoObject:
        return pb.CompletePollResponse(completed=False)
    caller.settled(message)
    return pb.CompletePollResponse(completed=True, late=late)


def fail(caller: Caller, request: pb.FailRequest, now: float) -> pb.FailResponse:
    """Count a failure, or end the message without success at once."""
    message = caller.message(_lease(request))
    outcome = Outcome.REJECT if request.reject else Outcome.FAIL
    reason = request.reason or ("rejected" if request.reject else "")
    settle(message, outcome, checked_reason(reason, caller.limits), now)
    return pb.FailResponse()


def release(caller: Caller, request: pb.ReleaseRequest, now: float) -> pb.ReleaseResponse:
    """Let a message wait again."""
    message = caller.message(_lease(request))
    message.cursor.release(message, now)
    caller.settled(message)
    return pb.ReleaseResponse()


def keep_alive(caller: Caller, request: pb.KeepAliveRequest, now: float) -> pb.KeepAliveResponse:
    """Start a lease anew, or all of them."""
    if not request.HasField("lease"):
        return pb.KeepAliveResponse(count=caller.engine.keep_alive_all(caller.client, now))
    message = caller.message(request.lease)
    message.cursor.keep_alive(message, now)
    return pb.KeepAliveResponse(count=1)


def _lease(request: pb.CompletePollRequest | pb.FailRequest | pb.ReleaseRequest) -> pb.Lease:
    if not request.HasField("lease"):
        raise BadRequest("lease is missing: give back what Poll gave", key="lease")
    return request.lease
