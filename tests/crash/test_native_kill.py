"""A server that is killed at any instant keeps what clients were promised, who come back and go on."""

from pathlib import Path

import pytest

from tests.crash.native_rounds import native_rounds

ROUNDS = 8


@pytest.mark.slow
def test_what_clients_were_promised_survives_being_killed(tmp_path: Path) -> None:
    """Posts stored once, completions and transactions that hold, through eight kills of one conversation."""
    ledger = native_rounds(tmp_path, ROUNDS, seed=1)
    assert len(ledger.confirmed) > 300
    assert len(ledger.completed) > 100
    assert len(ledger.forwarded) > 30
