"""Of several hosts the pipeline asks those that do not answer, and then the one that serves."""

import pytest

from penstock.model.errors import BadRequest, Unavailable
from penstock.pipeline.log_client import LogClient
from tests.served import Served


def test_the_host_that_serves_is_found(shared: Served) -> None:
    """Wherever it stands in the URL; what it refuses is refused."""
    host, port = shared.native
    for hosts in (f"127.0.0.1:1,{host}:{port}", f"{host}:{port},127.0.0.1:1"):
        client = LogClient(f"penstock://{hosts}")
        assert client.extent().first == 1
        with pytest.raises(BadRequest):
            client.take_reader("reader", "owner", 2**40)


def test_hosts_that_do_not_answer_are_all_named() -> None:
    """With what was tried."""
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached.*127\.0\.0\.1:2 cannot be reached"):
        LogClient("penstock://127.0.0.1:1,127.0.0.1:2").extent()
