"""Asking for the management of brokers, of which one serves and others stand by."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from penstock import Unavailable
from penstock.client.address import target_of
from penstock.client.management import got
from penstock.server.http.messages import error_response
from tests.client.conftest import url_of
from tests.client.test_approach import host
from tests.served import Served


def answer(key: str) -> bytes:
    """Return how a broker refuses over HTTP because of this."""
    body = error_response(Unavailable("not here", key=key)).body
    assert isinstance(body, bytes)
    return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_whoever_stands_by_is_passed_over(served: Served) -> None:
    """As clients pass it over; what the one that serves says counts."""
    async with host(answer("standby")) as place:
        url = url_of(served).replace("//", f"//{place},")
        assert "queues" in await asyncio.to_thread(got, target_of(url), "/api/v1/queues")


@pytest.mark.parametrize("keys", [["standby", "standby"], ["backup", "standby"], ["standby", "backup"]])
async def test_a_refusal_is_told(keys: list[str]) -> None:
    """That of the one that serves, if there is one."""
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(host(answer(key))) for key in keys]
        with pytest.raises(Unavailable, match="not here") as refused:
            await asyncio.to_thread(got, target_of("penstock://" + ",".join(places)), "/")
    assert refused.value.key == min(keys)
