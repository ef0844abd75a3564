"""A broker with its door of gRPC for the tests of each module, and stubs to call it by."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import pytest
from grpc import aio

from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.served import Served

Connect: TypeAlias = Callable[[Served], BrokerAsyncStub]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Return stubs on channels of their own, which are closed at the end."""
    async with AsyncExitStack() as stack:

        def connected(served: Served) -> BrokerAsyncStub:
            channel = aio.insecure_channel(served.grpc, options=[("grpc.use_local_subchannel_pool", 1)])
            stack.push_async_callback(channel.close)
            return BrokerAsyncStub(channel)

        yield connected


@pytest.fixture
def stub(served: Served, connect: Connect) -> BrokerAsyncStub:
    """Return a stub of the module's broker."""
    return connect(served)
