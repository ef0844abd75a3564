"""Two brokers on one PostgreSQL keep what clients were promised, whichever of the three is taken away."""

from pathlib import Path

import pytest

from tests.conftest import require
from tests.crash.takeover_rounds import KINDS, takeover_rounds
from tests.postgres import find_programs


@pytest.mark.slow
def test_what_clients_were_promised_survives_takeovers(tmp_path: Path) -> None:
    """Posts stored once, completions and transactions that hold, through one round of each kind."""
    require(find_programs(), "PostgreSQL is not installed")
    ledger, times = takeover_rounds(tmp_path, len(KINDS), seed=1)
    assert all(len(seconds) == 1 for seconds in times.values())
    assert len(ledger.confirmed) > 100
    assert len(ledger.completed) > 30
    assert len(ledger.forwarded) > 10
