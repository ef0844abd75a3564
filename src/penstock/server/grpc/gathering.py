"""Gathering: calls of `Enqueue` that come at about the same time are published, written and confirmed together.

The library hands over one call in each round of the loop. By itself each would be a batch of the store, while fewer and
larger ones cost less; where many calls are in flight, each waits a moment for the others.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.stages import Level
from penstock.protocols.grpc.callers import Caller
from penstock.protocols.grpc.publishing import enqueue
from penstock.runtime.runtime import Runtime
from penstock.v1 import broker_pb2 as pb

#: With so many calls that are not answered others are waited for: about half the time in which they are answered.
MANY_CALLS, GATHER_SECONDS_PER_CALL, GATHER_SECONDS_MAX = 16, 0.0001, 0.01


class _Call(NamedTuple):
    """A message that is to be published, and where its answer is waited for."""

    caller: Caller
    request: pb.EnqueueRequest
    level: Level
    answer: "asyncio.Future[pb.EnqueueResponse]"


class Gathering:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._calls: list[_Call] = []
        #: Of all calls that are not answered.
        self._open: set[asyncio.Future[pb.EnqueueResponse]] = set()
        runtime.watch(self._look_at_store)

    def publish(self, caller: Caller, request: pb.EnqueueRequest, level: Level) -> "asyncio.Future[pb.EnqueueResponse]":
        """Publish a message soon; the future has the answer when it is as durable as `level` says."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[pb.EnqueueResponse] = loop.create_future()
        if not self._calls:
            if len(self._open) < MANY_CALLS:
                loop.call_soon(self._publish_all)
            else:
                seconds = min(len(self._open) * GATHER_SECONDS_PER_CALL, GATHER_SECONDS_MAX)
                loop.call_later(seconds, self._publish_all)
        self._calls.append(_Call(caller, request, level, answer))
        self._open.add(answer)
        answer.add_done_callback(self._open.discard)
        return answer

    def _publish_all(self) -> None:
        calls, self._calls = self._calls, []
        runtime, now, size = self._runtime, self._runtime.now(), 0
        published: dict[Level, list[tuple[asyncio.Future[pb.EnqueueResponse], pb.EnqueueResponse]]] = {}
        for caller, request, level, answer in calls:
            if answer.done():  # whoever asked has gone
                continue
            try:
                response = enqueue(caller, request, now)
            except Exception as error:  # noqa: BLE001  # it is told to who asked, and to nobody else
                answer.set_exception(error)
                continue
            size += len(request.message.body)
            published.setdefault(level, []).append((answer, response))
        is_behind = runtime.touch(size)
        for level, answers in published.items():
            awaited = Level.WRITE if is_behind and level is Level.READY else level
            runtime.after(awaited, partial(_answer_all, answers))

    def _look_at_store(self) -> None:
        try:
            self._runtime.check()
        except PenstockError as error:
            for answer in list(self._open):
                if not answer.done():
                    answer.set_exception(error)


def _answer_all(answers: "list[tuple[asyncio.Future[pb.EnqueueResponse], pb.EnqueueResponse]]") -> None:
    for answer, response in answers:
        if not answer.done():
            answer.set_result(response)
