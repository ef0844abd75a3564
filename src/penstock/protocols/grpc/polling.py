"""Polls: what a call takes that wants one message."""

from dataclasses import dataclass

from penstock.engine.port import Consumer, Selection
from penstock.model.access import Action
from penstock.model.message import Message
from penstock.model.selector import parse
from penstock.model.settings import checked_seconds
from penstock.model.stages import Level
from penstock.protocols.grpc.callers import Caller
from penstock.protocols.grpc.messages import fill, lease_of, level_of, selection_of
from penstock.v1 import broker_pb2 as pb


@dataclass(slots=True)
class Poll:
    """One call: what it chooses, and how long it waits."""

    selection: Selection
    consumer: Consumer
    wait: float

    def take(self, caller: Caller, now: float) -> Message | None:
        """Return what is there."""
        return caller.engine.take_now(self.consumer, self.selection, now)


def poll_of(caller: Caller, request: pb.PollRequest) -> Poll:
    """Return what a request asks for, if the caller may have it."""
    selection = selection_of(request)
    caller.check(Action.CONSUME, selection.name)
    selector = caller.engine.selected_by(parse(request.selector).matches) if request.HasField("selector") else None
    consumer = Consumer(
        caller.client,
        _ignore,
        timeout=lease_of(request),
        once=True,
        takes_turns=selection.takes_turns,
        selector=selector,
        level=level_of(request.sync, "sync", Level.READY),
    )
    return Poll(selection, consumer, checked_seconds(request.wait, "wait"))


def polled(caller: Caller, message: Message | None) -> pb.PollResponse:
    """Return the answer."""
    if message is None:
        return pb.PollResponse()
    response = pb.PollResponse(lease=caller.leased(message))
    fill(response.message, message)
    return response


def _ignore(consumer: Consumer) -> None:
    """Take no note of a message: whoever waits for one says by what he is told."""
