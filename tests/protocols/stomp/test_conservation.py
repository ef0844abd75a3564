"""Whatever peers do, each message is with one of them at a time until it is settled, and none is lost or made up."""

import pytest

from tests.protocols.stomp.conservation import Conservation
from tests.protocols.stomp.peers import World

STEPS = 300


@pytest.mark.parametrize("seed", range(60))
async def test_messages_are_conserved(world: World, seed: int) -> None:
    """Acknowledging, refusing, transactions, leaving in every way: the account agrees with the broker throughout."""
    peers = Conservation(world, seed)
    await peers.run(STEPS)
    assert peers.settled > STEPS // 30
