"""Half a minute of heart-beats, in which those who never log in are shut out; `scripts/campaign-stomp-beats` goes on."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.served import Served
from tests.server.beating import beat
from tests.server.raw import CONNECT, Raw

SECONDS = 30.0
#: Milliseconds: long enough for a machine that has much else to do.
INTERVAL = 3000


@pytest.fixture
def half_open(served: Served) -> Iterator[list[Raw]]:
    """Connect without a login: without a word, with half of a CONNECT, and with bytes that only look like life."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Raw(served.stomp)).send(said) for said in (b"", CONNECT[:-1], b"\n\n\n", b"CONNECT\n")
        ]


@pytest.mark.slow
def test_heart_beats_hold_through_traffic_and_logins_do_not_stay_half_open(
    served: Served, half_open: list[Raw]
) -> None:
    """No client misses a beat, however much else it is sent; who has not logged in by then is told and closed."""
    assert beat(served, SECONDS, INTERVAL) == []
    for stranger in half_open:
        assert b"no login came within 10 seconds" in stranger.rest()
