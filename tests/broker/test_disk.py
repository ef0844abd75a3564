"""A disk that is full or fails: publishers are told, settling goes on, and a start afterwards finds what was promised."""

import asyncio
import contextlib
import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.model.errors import StoreError, StoreFull, Unavailable
from penstock.runtime import upkeep
from penstock.store.journal import Journal
from tests.broker.stores import WatchedStore
from tests.conftest import require
from tests.crash.simulated_disk import Fault, SimulatedDisk

SEGMENT_BYTES = 64 * 1024
RETAIN = (0.0, 0)


def journal(disk: SimulatedDisk) -> Journal:
    """Return a journal on a simulated disk."""
    return Journal("data", segment_bytes=SEGMENT_BYTES, file_system=disk, background=False)


async def filled(broker: Broker, most: int = 100_000) -> list[int]:
    """Publish until that is refused; return the sequences that were confirmed."""
    sequences = []
    for _ in range(most):
        try:
            sequences.append((await broker.enqueue("orders", b"x" * 2000)).sequence)
        except Unavailable as error:
            assert error.key == "disk"  # noqa: PT017  # the loop is what is tested
            return sequences
    raise AssertionError("the disk did not fill up")


async def drained(broker: Broker) -> list[int]:
    """Take and complete all that is there; return the sequences."""
    sequences = []
    while messages := await broker.poll_many("orders", 20):
        sequences += [message.sequence for message in messages]
        await broker.complete_many(messages)
    return sequences


async def publishing_again(broker: Broker) -> None:
    """Wait until publishing is possible again, as a publisher would."""
    for _ in range(200):
        try:
            await broker.enqueue("orders", b"again")
        except Unavailable:
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError("publishing did not resume by itself")


async def full_and_drained(broker: Broker) -> None:
    """Fill the disk, see who is refused and who is not, and drain it."""
    await drained(broker)
    published = await filled(broker)
    assert len(published) > 20
    assert broker.is_healthy
    with pytest.raises(Unavailable):
        await broker.publish("news", b"1")
    transaction = broker.transaction()
    transaction.enqueue("orders", b"1")
    with pytest.raises(Unavailable) as error:
        await transaction.commit()
    assert error.value.key == "disk"
    assert await drained(broker) == published
    await publishing_again(broker)


async def test_a_full_disk_refuses_publishers_and_lets_consumers_drain() -> None:
    """`Unavailable` with the key `disk` for who publishes; who settles goes on; then publishing resumes by itself."""
    disk = SimulatedDisk(capacity=SEGMENT_BYTES * 12)
    async with Broker.open(journal(disk), retain_log=RETAIN) as broker:
        for _ in range(3):
            await full_and_drained(broker)


async def test_a_drain_that_is_longer_than_the_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small messages whose settlements take several times what is kept ready: it is collected while they are drained."""
    monkeypatch.setattr(upkeep, "ROOM_SECONDS", 0.0)
    disk = SimulatedDisk(capacity=SEGMENT_BYTES * 12)
    async with Broker.open(journal(disk), retain_log=RETAIN) as broker:
        published = 0
        with contextlib.suppress(Unavailable):
            while True:
                published += len(await broker.enqueue_many("orders", [b"x" * 200] * 20))
        taken = 0
        while messages := await broker.poll_many("orders", 20):
            taken += len(messages)
            await broker.complete_many(messages)
            while not broker._runtime.has_room and broker._runtime.upkeep._grown:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.001)
        assert taken == published > 2000
        await publishing_again(broker)


@pytest.mark.parametrize("is_read", [False, True])
async def test_history_gives_way_on_a_full_disk_unless_it_is_read(is_read: bool) -> None:
    """What was settled is kept for readers to come only while there is room; for a reader that there is, it is kept."""
    disk = SimulatedDisk(capacity=SEGMENT_BYTES * 12)
    async with Broker.open(journal(disk)) as broker:
        if is_read:
            broker._engine.readers.move("lake", 1, broker._runtime.now())
        published = await filled(broker)
        assert await drained(broker) == published
        if is_read:
            await asyncio.sleep(2 * upkeep.ROOM_SECONDS)
            with pytest.raises(Unavailable):
                await broker.enqueue("orders", b"1")
            kept = {one for batch in broker._runtime.store.read(1, published[-1]) for one in batch.positions}
            assert kept >= set(published)
            broker._engine.readers.remove("lake", broker._runtime.now())
            broker._runtime.touch()
        await publishing_again(broker)


class TightStore(WatchedStore):
    """Has room once it was collected twice in a row, and no room for the second index at first."""

    def __init__(self) -> None:
        super().__init__()
        self.saves = 4

    def has_room(self) -> bool:
        return self.saves > 3

    def make_room(self) -> bool:
        return self.saves > 3

    def save(self, position: int, index: bytes) -> None:
        self.saves += 1
        if self.saves == 2:
            raise StoreFull("no room for an index", key="disk")


async def test_a_collection_that_found_no_room_is_tried_again() -> None:
    """Also when nothing is settled any more that would give a reason for it."""
    store = TightStore()
    async with Broker.open(store) as broker:
        await broker.collect()
        store.saves = 0
        broker._runtime.touch()
        await asyncio.sleep(0)
        assert not broker._runtime.has_room
        await publishing_again(broker)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MiB."""
    place = tmp_path / "mount"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    mounted = mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    require(mounted, "a tmpfs cannot be mounted here: that takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    """The same on a real file system; a start while it is full succeeds, too."""
    options = {"segment_bytes": 512 * 1024, "retain_log": RETAIN}
    async with Broker.open(small_disk / "data", **options) as broker:  # type: ignore[arg-type]
        await full_and_drained(broker)
        published = await filled(broker)
    async with Broker.open(small_disk / "data", **options) as broker:  # type: ignore[arg-type]
        found = await drained(broker)
        assert set(published) <= set(found)
        await publishing_again(broker)


async def worked(broker: Broker, confirmed: list[tuple[str, int]]) -> None:
    """Publish and settle; note each sequence that was confirmed as published or settled."""
    for _ in range(40):
        receipt = await broker.enqueue("orders", b"x" * 500)
        confirmed.append(("published", receipt.sequence))
        message = await broker.poll("orders")
        assert message is not None
        if receipt.sequence % 3:
            await broker.complete(message)
            confirmed.append(("completed", message.sequence))
        else:
            await broker.release(message)
        if receipt.sequence % 10 == 0:
            await broker.collect()


@pytest.mark.slow
@pytest.mark.parametrize("permanent", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_whichever_call_of_the_disk_fails(error: int, permanent: bool) -> None:
    """After a failed write or sync nothing is confirmed any more; a start afterwards finds what was."""
    at, failures = 1, 0
    while True:
        disk = SimulatedDisk()
        store = Journal("data", segment_bytes=8192, file_system=disk, background=False)
        broker = await Broker.open(store, retain_log=RETAIN).start()
        confirmed: list[tuple[str, int]] = []
        start = disk.count
        disk.fault = Fault(start + at, error, permanent=permanent)
        with contextlib.suppress(Unavailable):
            await asyncio.wait_for(worked(broker, confirmed), 20)
        struck = disk.count >= start + at
        count = len(confirmed)
        if not broker.is_healthy:
            failures += 1
            with pytest.raises(Unavailable) as told:
                await broker.enqueue("orders", b"1")
            assert isinstance(told.value.data["cause"], StoreError)
            disk.fault = None  # even if the disk is well again, nothing is tried
            with pytest.raises(Unavailable):
                await broker.collect()
        files = disk.contents()
        with contextlib.suppress(Unavailable):  # the fault may strike only now
            await broker.close()
        assert len(confirmed) == count
        await check_after(files, confirmed)
        if not struck:
            break
        at += 11
    assert failures > 5 or error == errno.ENOSPC


async def check_after(files: dict[str, bytes], confirmed: list[tuple[str, int]]) -> None:
    """Start from what the disk holds, and look for all that was confirmed."""
    async with Broker.open(Journal("data", file_system=SimulatedDisk(files), background=False)) as broker:
        found = set(await drained(broker)) if await broker.queues() else set()
    completed = {sequence for what, sequence in confirmed if what == "completed"}
    published = {sequence for what, sequence in confirmed if what == "published"}
    assert not completed & found
    assert len(published - completed - found) <= 1  # the one whose settlement was not confirmed may be settled
