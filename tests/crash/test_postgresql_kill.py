"""A broker and the PostgreSQL that it stores in, killed in turn: what was promised is there."""

from pathlib import Path

import pytest

from tests.conftest import require
from tests.crash.postgresql_rounds import postgresql_rounds
from tests.postgres import find_programs

ROUNDS = 6


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_promised_survives_either_being_killed(tmp_path: Path) -> None:
    """As on a journal, with the database server ending in every other round."""
    require(find_programs(), "PostgreSQL is not installed")
    check = postgresql_rounds(tmp_path, ROUNDS, seed=1)
    assert check.counts["published"] > 50
    assert check.counts["completed"] > 30
