"""Every protocol against the same model: alone, and each client in another."""

import pytest

from tests.protocols.native.machine import STOMP, run_machine
from tests.protocols.native.peers import CARRIERS

EXAMPLES = 12


@pytest.mark.slow
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_queue_is_what_the_model_says(carrier: str) -> None:
    """Whatever clients of one protocol do to a queue; `scripts/campaign-protocols` does much more of it."""
    run_machine([carrier], EXAMPLES)


@pytest.mark.slow
def test_protocols_share_a_queue() -> None:
    """Published in one, taken in another, settled in a third by a client that came back."""
    run_machine([*CARRIERS, STOMP], 2 * EXAMPLES)
