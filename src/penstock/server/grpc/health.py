"""The standard services beside the broker's own: whether it can keep promises, and what it speaks. They need no login.

So a stranger may call them: there is a limit for all of these calls together, and whoever reads no answer holds up nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from penstock.protocols.grpc.messages import read
from penstock.runtime.runtime import Runtime
from penstock.server.grpc.conversation import Context
from penstock.server.grpc.service import only, refuse
from penstock.server.limits import ServerLimits

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

Behaviour: TypeAlias = Callable[[Context], Awaitable[None]]


class StandardServices(grpc.GenericRpcHandler):
    """See the module."""

    def __init__(self, runtime: Runtime, service: str, limits: ServerLimits) -> None:
        self._runtime = runtime
        self._limits = limits
        #: The empty name stands for the whole server.
        self._services = ("", service)
        self._status: int = _SERVING
        #: Whether the status is another since somebody looked; then there is a new one.
        self._has_changed = asyncio.Event()
        self._calls = 0
        self._reflection = reflection.aio.ReflectionServicer((service, health.SERVICE_NAME, reflection.SERVICE_NAME))
        self._behaviours: dict[str, Behaviour] = {
            f"/{health.SERVICE_NAME}/Check": self._check,
            f"/{health.SERVICE_NAME}/Watch": self._watch,
            f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": self._reflect,
        }
        runtime.watch(self._look_at_store)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """Return what handles a call, None if there is no such method."""
        behaviour = self._behaviours.get(handler_call_details.method)
        if behaviour is None:
            return None
        return grpc.stream_stream_rpc_method_handler(partial(self._behave, behaviour))

    def close(self) -> None:
        """Tell that no more promises are given."""
        self._runtime.unwatch(self._look_at_store)
        self._tell(_NOT_SERVING)

    def _look_at_store(self) -> None:
        if self._runtime.failure is not None:
            self._tell(_NOT_SERVING)

    def _tell(self, status: int) -> None:
        self._status = status
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    async def _behave(self, behaviour: Behaviour, _: object, context: Context) -> None:
        most = self._limits.grpc_stranger_calls_max
        if self._calls >= most:
            text = f"there are {most} calls without a login already (grpc_stranger_calls_max)"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._calls += 1
        try:
            await behaviour(context)
        except aio.BaseError:  # of the library: the peer has gone, or was told
            raise
        except Exception as error:  # noqa: BLE001  # what it is decides what the peer is told
            await refuse(error, context)
        finally:
            self._calls -= 1

    async def _check(self, context: Context) -> None:
        if read(health_pb2.HealthCheckRequest, await only(context)).service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        await context.write(health_pb2.HealthCheckResponse(status=self._status).SerializeToString())

    async def _watch(self, context: Context) -> None:
        is_known = read(health_pb2.HealthCheckRequest, await only(context)).service in self._services
        while True:
            has_changed = self._has_changed
            status = self._status if is_known else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            await context.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())
            await has_changed.wait()

    async def _reflect(self, context: Context) -> None:
        answers = self._reflection.ServerReflectionInfo(_questions(context), context)
        async for answer in answers:  # type: ignore[attr-defined]  # its types say that it is a coroutine
            await context.write(answer.SerializeToString())


async def _questions(context: Context) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    while isinstance(data := await context.read(), bytes):
        yield read(reflection_pb2.ServerReflectionRequest, data)
