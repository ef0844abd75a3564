"""A server that is killed at any instant keeps what it confirmed over STOMP: a real process, real clients, SIGKILL."""

from pathlib import Path

import pytest

from tests.crash.stomp_rounds import stomp_rounds

ROUNDS = 20


@pytest.mark.slow
def test_what_stomp_has_confirmed_survives_being_killed(tmp_path: Path) -> None:
    """Messages, acknowledgements, whole transactions and a durable subscriber's place hold through twenty kills."""
    ledger = stomp_rounds(tmp_path, ROUNDS, seed=1)
    assert len(ledger.confirmed["work"]) > 200
    assert len(ledger.settled) > 50
    assert len(ledger.forwarded) > 20
    assert len(ledger.confirmed["pairs"]) > 50
    assert len(ledger.confirmed["events"]) > 50
