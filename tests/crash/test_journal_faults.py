"""T5, and a full disk: whatever call of the disk fails, nothing is promised afterwards that does not hold."""

import errno
from collections.abc import Callable

import pytest

from penstock.model.errors import StoreError, StoreFailed, StoreFull
from penstock.model.records import Kind
from penstock.store.journal import Journal
from tests.crash.journal_world import SEGMENT_BYTES, World, check, new_journal, record_at
from tests.crash.simulated_disk import Fault, SimulatedDisk

OPERATIONS = 200
SHORT = 0


def calls_of_a_run() -> int:
    """Return how many calls the work makes that can fail."""
    world = World(SimulatedDisk(), 5)
    world.open()
    world.run(OPERATIONS)
    return world.disk.count


def run_with(fault: Fault) -> tuple[World, StoreError | None]:
    """Do the work with a fault; stop at the first error, as a broker does."""
    world = World(SimulatedDisk(), 5)
    world.disk.fault = fault
    try:
        world.open()
        world.run(OPERATIONS)
    except StoreError as error:
        return world, error
    return world, None


def check_stopped(world: World) -> None:
    """Check that after a failure nothing is promised or tried any more, even if the disk works again."""
    world.disk.fault = None
    before = len(world.disk.calls)
    for attempt in attempts(world):
        with pytest.raises(StoreFailed):
            attempt()
    assert len(world.disk.calls) == before


def attempts(world: World) -> list[Callable[[], object]]:
    """Return everything that promises something."""
    journal, position = world.journal, world.next + 10
    return [
        lambda: journal.write(position, [record_at(position)], []),
        journal.sync,
        journal.seal,
        lambda: journal.save(position, b""),
    ]


@pytest.mark.parametrize("permanent", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_the_first_failure_is_final_and_a_restart_is_clean(error: int, permanent: bool) -> None:
    """An error at call N, for every N: it is told once and for ever, and what was promised before is there afterwards."""
    failures = 0
    for number in range(1, calls_of_a_run() + 1):
        world, told = run_with(Fault(number, error, permanent))
        if isinstance(told, StoreFailed):
            failures += 1
            check_stopped(world)
        assert told is not None or error == errno.ENOSPC, f"the failure of call {number} was not told"
        world.journal.close()
        check(world.disk.contents(), world.promises, len(world.disk.calls), again=number % 4 == 0)
    assert failures > 100


@pytest.mark.parametrize("error", [errno.EINTR, SHORT])
def test_interrupted_and_short_writes_go_on(error: int) -> None:
    """A write that takes only a part, or nothing for now, is continued: nobody notices."""
    for number in range(1, calls_of_a_run() + 1):
        world = World(SimulatedDisk(), 5)
        world.open()
        world.disk.fault = Fault(number, error)
        writes_only(world, 40)
        world.disk.fault = None
        world.sync()
        check(world.disk.contents(), world.promises, len(world.disk.calls), again=False)
        if number > world.disk.count:
            break


def writes_only(world: World, count: int) -> None:
    """Write batches that fit, without a sync that a signal could interrupt."""
    for _ in range(count):
        world.write(1)


def test_a_failed_sync_is_not_tried_again() -> None:
    """After a failed fdatasync the kernel may call lost pages clean: a second one would promise what is not there."""
    world = World(SimulatedDisk(), 1)
    world.open()
    world.write(5)
    world.disk.fault = Fault(world.disk.count + 1, errno.EIO)
    with pytest.raises(StoreFailed):
        world.journal.sync()
    syncs = world.disk.syncs
    with pytest.raises(StoreFailed):
        world.journal.sync()
    world.journal.close()
    assert world.disk.syncs == syncs


def message(position: int, size: int = 400) -> tuple[int, int, float, int, int, int, None, bytes]:
    """Return a published message."""
    return (int(Kind.PUBLISH), 5, 1.0, position, 7, 4, None, bytes([position & 255]) * size)


def fill(world: World, position: int) -> int:
    """Publish until there is no room; return the next position."""
    while world.journal.has_room():
        world.journal.write(position, [message(position)], [])
        world.journal.sync()
        position += 1
    return position


def test_a_full_disk_stops_publishers_lets_consumers_drain_and_recovers_by_itself() -> None:
    """`has_room` says no before anything fails; a segment's worth of settlements still fits; draining gives room again."""
    disk = SimulatedDisk(capacity=SEGMENT_BYTES * 8)
    world = World(disk, 1)
    world.open()
    position = published = fill(world, 1)
    assert published > 100
    assert not world.journal.make_room()
    for sequence in range(1, published):
        world.journal.write(position, [(int(Kind.FINISH), 5, 1.0, sequence, 7, 1, None, b"")], [sequence])
        world.journal.sync()
        position += 1
    for _ in range(2):
        world.journal.save(position, b"s" * 3000)
        world.journal.write(position, [(int(Kind.CLIENT), 0, 1.0, 0, 7, 0, None, b"")], [])
        world.journal.sync()
        position += 1
    assert world.journal.collect(position) > SEGMENT_BYTES
    assert world.journal.make_room()
    assert world.journal.has_room()
    assert fill(world, position) > position + 50


def test_a_journal_opens_while_the_disk_is_full() -> None:
    """A broker that was killed with a full disk starts again, says that there is no room, and gives back all it has."""
    world = World(SimulatedDisk(capacity=SEGMENT_BYTES * 8), 1)
    world.open()
    published = fill(world, 1)
    disk = SimulatedDisk(world.disk.contents(), capacity=world.disk.used())
    again = World(disk, 2)
    assert [one for batch in again.journal.open().batches for one in batch.positions] == list(range(1, published))
    assert not again.journal.has_room()
    again.journal.adopt([range(1, published)])
    assert again.journal.recall([1, published - 1]) == [message(1), message(published - 1)]
    again.journal.write(published, [message(published, 40)], [])
    again.journal.sync()


def test_a_batch_for_which_there_is_no_segment_is_refused_and_not_written() -> None:
    """A batch larger than a segment on a full disk raises `StoreFull`; the journal goes on with what fits."""
    world = World(SimulatedDisk(capacity=SEGMENT_BYTES * 5), 1)
    world.open()
    with pytest.raises(StoreFull) as error:
        world.journal.write(1, [message(1, SEGMENT_BYTES * 6)], [])
    assert error.value.key == "disk"
    world.journal.write(1, [message(1)], [])
    world.journal.sync()
    assert world.journal.recall([1]) == [message(1)]


@pytest.mark.parametrize("step", ["create", "write"])
def test_a_disk_that_fills_up_while_compacting_costs_nothing(step: str) -> None:
    """When there is no room even without the ballast, the collection is given up, says so, and can be tried again."""
    world = World(SimulatedDisk(), 1)
    world.open()
    for position in range(1, 300):
        world.journal.write(position, [message(position)], [])
    live = list(range(1, 300, 30))
    world.journal.write(300, [(int(Kind.CLIENT), 0, 1.0, 0, 7, 0, None, b"")], sorted({*range(1, 300)} - {*live}))
    world.journal.sync()
    for _ in range(2):
        world.journal.save(301, b"")
    disk = world.disk
    if step == "create":
        disk.fault = Fault(disk.count + 1, errno.ENOSPC, permanent=True)
        with pytest.raises((StoreFull, StoreFailed)):
            world.journal.collect(300)
        disk.fault = None
        check_live(new_journal(SimulatedDisk(disk.contents())), live)
        return
    spares = [path for path in disk.files if path.endswith(".tmp")]
    assert len(spares) == 3
    disk.capacity = disk.used() - SEGMENT_BYTES // 2 + 600
    with pytest.raises(StoreFull):
        world.journal.collect(300)
    assert not world.journal.has_room()
    assert [path for path in disk.files if "packed" in path] == []
    disk.capacity = None
    assert world.journal.make_room()
    assert world.journal.collect(300) > SEGMENT_BYTES
    assert world.journal.recall(live) == [message(one) for one in live]


def check_live(journal: Journal, live: list[int]) -> None:
    """Check that a journal opens and still has these messages."""
    list(journal.open().batches)
    journal.adopt([live])
    assert journal.recall(live) == [message(one) for one in live]
