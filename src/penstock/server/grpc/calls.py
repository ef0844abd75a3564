"""Calls with one request and one response: what each does with the engine, and when it is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from google.protobuf.message import Message

from penstock.model.message import Message as Handed
from penstock.model.stages import Level
from penstock.protocols.grpc import managing, settling
from penstock.protocols.grpc.callers import Caller
from penstock.protocols.grpc.errors import closing
from penstock.protocols.grpc.messages import level_of, read
from penstock.protocols.grpc.polling import Poll, poll_of, polled
from penstock.runtime.runtime import Runtime
from penstock.runtime.subscription import release, wait_for_one
from penstock.server.grpc.gathering import Gathering
from penstock.v1 import broker_pb2 as pb

Deed: TypeAlias = Callable[[Caller, Any, float], Message]

#: A poll gives up so long before its deadline: what came later could not be handed over in time.
HAND_OVER_SECONDS = 0.02
#: What is done and answered when it is on disk, and what waits for nothing.
SYNCED: dict[str, tuple[type[Message], Deed]] = {
    "CompletePoll": (pb.CompletePollRequest, settling.complete),
    "Fail": (pb.FailRequest, settling.fail),
    "Release": (pb.ReleaseRequest, settling.release),
    "CreateQueue": (pb.CreateQueueRequest, managing.create_queue),
    "DeleteQueue": (pb.DeleteQueueRequest, managing.delete_queue),
}
READY: dict[str, tuple[type[Message], Deed]] = {
    "KeepAlive": (pb.KeepAliveRequest, settling.keep_alive),
    "GetStatus": (pb.GetStatusRequest, managing.get_status),
}


class Calls:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._gathering = Gathering(runtime)
        #: Polls that wait for a message.
        self._waiting: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._is_closing = True
        for task in self._waiting:
            task.cancel()

    async def enqueue(self, caller: Caller, data: bytes) -> bytes:
        """Publish a message, and answer when it is as durable as was asked for."""
        request = read(pb.EnqueueRequest, data)
        level = level_of(request.confirm, "confirm", Level.SYNC)
        return (await self._gathering.publish(caller, request, level)).SerializeToString()

    async def do(self, kind: type[Message], deed: Deed, level: Level, caller: Caller, data: bytes) -> bytes:
        """Do what one of the tables says."""
        request = read(kind, data)
        runtime = self._runtime
        runtime.check()
        response = deed(caller, request, runtime.now())
        runtime.touch()
        if level is not Level.READY:
            await runtime.confirm(level)
        return response.SerializeToString()

    async def poll(
        self, caller: Caller, data: bytes, seconds_left: float | None, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Hand a message over, or let it wait again if that cannot be done."""
        poll = poll_of(caller, read(pb.PollRequest, data))
        runtime = self._runtime
        runtime.check()
        message = poll.take(caller, runtime.now())
        if message is None and poll.wait:
            message = await self._wait(poll, seconds_left)
        try:
            if runtime.touch() or poll.consumer.level is not Level.READY:
                await runtime.confirm(poll.consumer.level)
            await write(polled(caller, message).SerializeToString())
        except BaseException:
            release([] if message is None else [message], runtime.now())
            runtime.touch()
            raise

    async def _wait(self, poll: Poll, seconds_left: float | None) -> Handed | None:
        seconds = poll.wait if seconds_left is None else min(poll.wait, seconds_left - HAND_OVER_SECONDS)
        task = asyncio.current_task()
        if seconds <= 0 or task is None:
            return None
        if self._is_closing:
            raise closing()
        self._waiting.add(task)
        try:
            return await wait_for_one(self._runtime, poll.consumer.again(), poll.selection, seconds)
        except asyncio.CancelledError:
            if self._is_closing:
                raise closing() from None
            raise
        finally:
            self._waiting.discard(task)
