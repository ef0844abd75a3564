"""Backups of a server under load restore what was promised: a consistent prefix, in whatever kind of store."""

from pathlib import Path

import pytest

from tests.broker.backup_rounds import backup_rounds

ROUNDS = 3


@pytest.mark.slow
def test_backups_under_load_have_what_was_promised(tmp_path: Path, database: str) -> None:
    """Everything confirmed and nothing settled as of their moment, and no half transaction."""
    targets = [str, lambda _: database, str]
    ledger = backup_rounds(tmp_path, ROUNDS, 1, targets)
    assert len(ledger.confirmed) > 300
    assert len(ledger.completed) > 50
    assert len(ledger.forwarded) > 50
    assert len(ledger.pairs) > 100
