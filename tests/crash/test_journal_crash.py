"""T4 and T7: a crash at every call of the disk, also during recovery and compaction, loses nothing that was promised."""

import errno
import random

import pytest

from penstock.model.errors import StoreError
from tests.crash.journal_world import World, check, check_recovered, index_at, new_journal, record_at
from tests.crash.simulated_disk import Crashes, Fault, SimulatedDisk

OPERATIONS = 2000
SEEDS_OF_TORN_DISKS = 2


def world_of(seed: int, operations: int) -> World:
    """Return a world in which that much work was done."""
    world = World(SimulatedDisk(), seed)
    world.open()
    world.run(operations)
    return world


def images(crashes: Crashes, seed: int) -> list[dict[str, bytes]]:
    """Return what the disk may hold after a crash now."""
    return [
        crashes.synced_only(),
        crashes.names_lost(),
        *(crashes.torn(seed + one) for one in range(SEEDS_OF_TORN_DISKS)),
    ]


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_call_keeps_every_promise(part: int) -> None:
    """After a crash anywhere in 2,000 operations, all that was synced is there and batches are whole."""
    world = world_of(part, OPERATIONS // 4)
    crashes = Crashes(world.disk)
    while crashes.at < len(crashes.calls):
        call = crashes.step()
        if call.name == "create":
            continue  # Nothing that a crash could show.
        for image in images(crashes, part):
            check(image, world.promises, crashes.at, again=crashes.at % 4 == 0)
    names = {call.name for call in crashes.calls}
    assert names == {"create", "write", "resize", "sync", "rename", "remove", "sync_directory"}
    assert sum("packed" in call.path for call in crashes.calls) >= 4, "the work did not compact enough to test it"


@pytest.mark.parametrize("seed", range(12))
def test_crashes_during_recovery_keep_every_promise(seed: int) -> None:
    """Three crashes, each in the recovery from the one before, lose no more than one crash does."""
    world = world_of(100 + seed % 3, 150)
    choice = random.Random(seed)
    crashes = Crashes(world.disk)
    stop = choice.randrange(len(crashes.calls) // 2, len(crashes.calls))
    while crashes.at < stop:
        crashes.step()
    descend(crashes.torn(seed), world, stop, choice, depth=3)


def descend(image: dict[str, bytes], world: World, calls: int, choice: random.Random, depth: int) -> None:
    """Recover, crash at calls of that recovery, and recover from there."""
    disk = check(image, world.promises, calls, again=False)
    if not depth:
        return
    inner = Crashes(disk)
    chosen = set(choice.sample(range(1, len(disk.calls) + 1), min(4, len(disk.calls))))
    while inner.at < len(inner.calls):
        inner.step()
        if inner.at in chosen:
            descend(choice.choice(images(inner, depth)), world, calls, choice, depth - 1)


@pytest.mark.parametrize("seed", range(4))
def test_crashes_during_compaction_keep_every_promise(seed: int) -> None:
    """A crash at any call of a collection, and in the recovery after it, leaves every message that is needed."""
    world = world_of(200 + seed, 250)
    world.sync()
    for _ in range(2):
        world.write(1)
        world.sync()
        world.journal.save(world.next, b"state as of %d " % world.next * 10)
        world.promises.saved.append((len(world.disk.calls), world.next))
    begin = len(world.disk.calls)
    assert world.journal.collect(world.next) > 0
    crashes = Crashes(world.disk)
    while crashes.at < len(crashes.calls):
        crashes.step()
        if crashes.at > begin:
            for image in images(crashes, seed):
                descend(image, world, crashes.at, random.Random(crashes.at), depth=1)


def test_crashes_while_whole_segments_are_removed_leave_no_hole() -> None:
    """When several old segments go at once, a crash may bring back any of them; never one without those after it."""
    world = World(SimulatedDisk(), 7)
    world.open()
    for _ in range(80):
        world.write(12, 0.0)
    gone = tuple(world.written)
    world.written = []
    world.journal.write(world.next, [record_at(world.next)], gone)
    world.promises.batches.append((world.next, world.next, gone))
    world.next += 1
    world.sync()
    for _ in range(2):
        world.journal.save(world.next, index_at(world.next))
        world.promises.saved.append((len(world.disk.calls), world.next))
    begin = len(world.disk.calls)
    world.journal.collect(world.next)
    crashes = Crashes(world.disk)
    while crashes.at < len(crashes.calls):
        crashes.step()
        if crashes.at > begin:
            for seed in range(20):
                check(crashes.torn(seed), world.promises, crashes.at, again=False)
    assert [call.name for call in crashes.calls[begin:]].count("remove") >= 3


def test_a_loss_of_power_after_a_kill_keeps_every_promise() -> None:
    """Killed at any call, started again, and confirmed once more: what that builds on is on disk, whatever was not synced."""
    for at in range(1, 1000):
        world = World(SimulatedDisk(), 11)
        world.disk.fault = Fault(at, errno.EIO, permanent=True)  # nothing more reaches the disk: as if it were killed
        try:
            world.open()
            world.run(OPERATIONS // 8)
        except StoreError:
            world.journal.close()
        else:
            assert at > OPERATIONS // 8, "the work did too little to test it"
            return
        world.disk.fault = None
        promises, before = world.promises, len(world.disk.calls)
        journal = new_journal(world.disk, salt=at)
        end = check_recovered(journal, promises, promises.synced_by(before), promises.saved_by(before))
        promises.batches = [batch for batch in promises.batches if batch[0] <= end]
        promises.batches.append((end + 1, end + 1, ()))
        journal.write(end + 1, [record_at(end + 1)], ())
        journal.sync()
        promises.synced.append((len(world.disk.calls), end + 1))
        crashes = Crashes(world.disk)
        while crashes.at < len(crashes.calls):
            crashes.step()
        for image in images(crashes, at):
            check(image, promises, crashes.at, again=False)
    raise AssertionError("the work did not come to its end")
