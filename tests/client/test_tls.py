"""The client over TLS."""

import shutil
import ssl
from pathlib import Path

import pytest

import penstock
from tests.conftest import require
from tests.served import Served
from tests.server.conftest import made_certificate

OPTIONS = ("--store", "memory", "--stomp-listen", "none")


@pytest.mark.slow
async def test_everything_goes_over_tls(tmp_path: Path) -> None:
    """Calls, leases that are renewed, and what is asked over HTTP; a certificate that is not trusted is refused."""
    require(shutil.which("openssl"), "openssl is not installed")
    certificate = made_certificate(tmp_path)
    with Served(tmp_path, "--listen", "tls:127.0.0.1:0", *OPTIONS, *certificate.options) as served:
        url = "penstocks://localhost:{1}".format(*served.native)
        trusting = ssl.create_default_context(cafile=certificate.certificate)
        async with penstock.connect(url, tls=trusting, keepalive=0.1) as broker:
            await broker.create_queue("a", heartbeat_timeout=0.5)
            await broker.enqueue("a", b"x")
            message = await broker.poll("a")
            assert await broker.poll("a", wait=1.0) is None, "its lease was to be renewed meanwhile"
            assert await broker.complete(message) is False
            assert [state.queue for state in await broker.queues()] == ["a"]
        with pytest.raises(penstock.Unavailable, match="certificate"):
            await penstock.connect(url, connect_timeout=1.0).start()
