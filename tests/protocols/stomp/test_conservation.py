"""Whatever peers do, each message is with one of them at a time until it is settled, and none is lost or made up."""

import pytest

from tests.protocols.stomp.conservation import Conservation
from tests.protocols.stomp.durability import Durability
from tests.protocols.stomp.peers import World

STEPS = 300


@pytest.mark.parametrize("seed", [*range(40), 531])  # the last one showed a fault that the others do not
async def test_messages_are_conserved(world: World, seed: int) -> None:
    """Whoever acknowledges, refuses, holds too long, or leaves in whatever way: the account agrees with the broker."""
    peers = Conservation(world, seed)
    await peers.run(STEPS)
    assert peers.settled > STEPS // 30


@pytest.mark.parametrize("seed", range(40))
async def test_durable_subscribers_get_everything(world: World, seed: int) -> None:
    """Coming, going, changing hands, ending for good: each has all that is its own, in order, and nothing else."""
    subscribers = Durability(world, seed)
    await subscribers.run(STEPS)
    assert subscribers.settled > STEPS // 20
