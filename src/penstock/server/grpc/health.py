"""The standard services beside the broker's own: whether it can keep promises, and what it speaks. They need no login."""

import asyncio

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock.runtime.runtime import Runtime

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class StandardServices:
    """See the module."""

    def __init__(self, runtime: Runtime, service: str) -> None:
        self._runtime = runtime
        #: The empty name stands for the whole server.
        self._services = ("", service)
        self._health = health.aio.HealthServicer()
        self._telling: asyncio.Task[None] | None = None

    async def add_to(self, server: aio.Server) -> None:
        """Have a server answer to them."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self._services[1:], health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        await self._tell(_SERVING)
        self._runtime.watch(self._look_at_store)

    async def close(self) -> None:
        """Tell that no more promises are given."""
        self._runtime.unwatch(self._look_at_store)
        await self._tell(_NOT_SERVING)

    def _look_at_store(self) -> None:
        if self._runtime.failure is not None:
            self._telling = asyncio.get_running_loop().create_task(self._tell(_NOT_SERVING))

    async def _tell(self, status: int) -> None:
        for service in self._services:
            await self._health.set(service, status)
