"""The whole broker without threads, on a disk that crashes, under a seeded world: see `world.py`.

A seed that fails is played again by `scripts/campaign-simulation --seed N`.
"""

import pytest

from tests.simulation.world import World

SEEDS = 200
OPERATIONS = 2000
SHARE = 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_what_was_promised_holds_whatever_happens(first: int) -> None:
    """Through crashes, kills, restarts, jumping clocks and clients that come and go, nothing promised is broken."""
    for seed in range(first, first + SHARE):
        try:
            World(seed).run(OPERATIONS)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {error}; play it again: scripts/campaign-simulation --seed {seed}"
            ) from error
