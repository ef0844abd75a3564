"""How long the change log is kept for those who read it, on the disk: up to a cap, and no longer than they want."""

from pathlib import Path

from penstock import Broker
from penstock.engine.readers import Retention

MIB = 2**20
SEGMENT = 16 * MIB


async def settled(broker: Broker, mebibytes: int) -> None:
    """Publish and drop so much."""
    for _ in range(mebibytes // 4):
        await broker.enqueue_many("filler", [b"x" * 102_400] * 40)
        await broker.purge_queue("filler")


def on_disk(data: Path) -> int:
    """Return the bytes that all segments take."""
    return sum(path.stat().st_size for path in (data / "segments").iterdir())


async def test_a_reader_that_stays_away_does_not_fill_the_disk(tmp_path: Path) -> None:
    """What it has not read is kept up to the cap, and then no longer."""
    data = tmp_path / "data"
    async with Broker.open(data) as broker:
        runtime = broker._runtime
        history = runtime.store.log
        assert history is not None
        runtime.engine.readers.move("away", 1, runtime.now())
        await settled(broker, 40)
        await runtime.upkeep.collect(Retention(0.0, 0, 100 * MIB))
        assert history.start(runtime.durable_end) == 1

        await settled(broker, 80)
        await runtime.upkeep.collect(Retention(0.0, 0, 100 * MIB))
        held = history.start(runtime.durable_end)
        assert held > 1
        kept = sum(stretch.bytes for stretch in runtime.store.stretches())
        assert 100 * MIB - 2 * SEGMENT < kept <= 100 * MIB + SEGMENT

        runtime.engine.readers.remove("away", runtime.now())
        await runtime.upkeep.collect(Retention(0.0, 0, 100 * MIB))
        assert history.start(runtime.durable_end) > held
        assert on_disk(data) < 6 * SEGMENT
