"""A broker that is killed at any instant keeps what it promised: a real process, a real directory, SIGKILL."""

from pathlib import Path

import pytest

from tests.crash.kill_rounds import kill_rounds

ROUNDS = 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_promised_survives_being_killed(tmp_path: Path) -> None:
    """Confirmed messages and settlements hold through twenty kills; duplicates are marked, groups and topics in order."""
    check = kill_rounds(tmp_path, ROUNDS, seed=1)
    assert check.counts["published"] > 500
    assert check.counts["completed"] > 300
    assert check.counts["failed"] > 20
