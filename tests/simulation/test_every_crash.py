"""A crash at every call of the disk, with a whole broker above it: what is found is what one of the commits left."""

import pytest

from penstock.model.errors import PenstockError
from tests.crash.simulated_disk import Crashes
from tests.simulation.driver import found_before_start
from tests.simulation.summary import difference, without_past
from tests.simulation.world import OPERATIONS, World

ENDS = {"crash", "kill", "restart", "jump"}
WORK = {name: weight for name, weight in OPERATIONS.items() if name not in ENDS}


def worked(seed: int, operations: int) -> World:
    """Return a world that has worked for a while without any crash."""
    world = World(seed)
    world.driver.keeps_all = True
    for name in world.choice.choices(list(WORK), list(WORK.values()), k=operations):
        try:
            getattr(world, name)()
        except PenstockError:
            continue  # refused, as the simulation checks
    world.latest = max(world.latest, world.now())
    return world


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_call_leaves_what_was_promised(seed: int) -> None:
    """Each image of the disk holds the state as of the last promised commit or a later one, and nothing between two."""
    world = worked(seed, 400)
    driver = world.driver
    crashes = Crashes(driver.disk)
    checked = 0
    promised = 0
    promises = iter([*driver.promises, (len(driver.disk.calls) + 1, 0)])
    at, next_promise = next(promises)
    while crashes.at < len(crashes.calls):
        crashes.step()
        while at <= crashes.at:
            promised = next_promise
            at, next_promise = next(promises)
        if not promised:
            continue  # not even started yet
        for image in (crashes.synced_only(), crashes.names_lost(), crashes.torn(seed)):
            check(world, image, promised)
            checked += 1
    assert checked > 300


def check(world: World, image: dict[str, bytes], promised: int) -> None:
    """Look for the commit that an image holds."""
    faults = []
    for number in range(promised, min(promised + 3, max(world.driver.summaries) + 1)):
        summary = world.driver.summaries[number]
        looked = found_before_start(image, world.time, summary.now)
        expected, found = (without_past(one.state, world.latest) for one in (summary, looked))
        if expected == found:
            return
        faults.append(difference(expected, found))
    raise AssertionError(f"commit {promised} was promised, but: {faults}")
