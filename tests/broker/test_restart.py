"""What a restart keeps: everything that is written, and nothing that died with the process."""

import asyncio
import gc
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.engine import snapshot
from penstock.engine.engine import Engine
from penstock.runtime import upkeep
from penstock.runtime.recovery import RECORD_BYTES
from tests.broker.conftest import Opener

RELEASED = (1, True)


async def test_everything_survives_a_restart(on_disk: Opener) -> None:
    """Messages, settings, failure counts, delays, dedup windows, pauses and cursors come back."""
    async with on_disk() as broker:
        await broker.create_queue("orders", tags=["eu"], retry_limit=7)
        await broker.enqueue("orders", b"1", tags=["eu"], headers={"a": "b"}, priority=9, dedup_id="d")
        message = await broker.poll("orders")
        assert message is not None
        await broker.fail(message)
        await broker.enqueue("orders", b"2", tags=["eu"], delay=1000)
        await broker.enqueue("paused", b"3")
        await broker.pause_queue("paused")
        broker.subscribe(topic="news", durable="reader").close()
        await broker.publish("news", b"4")
    async with on_disk() as broker:
        status = await broker.status("orders", tags=["eu"])
        assert (status.ready, status.delayed, status.settings["retry_limit"]) == (1, 1, 7)
        assert (await broker.enqueue("orders", b"?", tags=["eu"], dedup_id="d")).duplicate
        message = await broker.poll("orders", tags=["eu"])
        assert message is not None
        assert (message.body, message.attempt, message.redelivered, dict(message.headers)) == (
            b"1",
            2,
            True,
            {"a": "b"},
        )
        assert await broker.poll("paused") is None
        async with broker.subscribe(topic="news", durable="reader") as subscription:
            assert (await asyncio.wait_for(anext(subscription), 5)).body == b"4"


async def test_a_clean_stop_releases_what_is_held(on_disk: Opener) -> None:
    """It waits again at once, marked, and does not count as a failure."""
    async with on_disk() as broker:
        await broker.enqueue("orders", b"1")
        assert await broker.poll("orders") is not None
    async with on_disk() as broker:
        message = await broker.poll("orders")
        assert message is not None
        assert (message.attempt, message.redelivered) == RELEASED


async def test_a_process_that_died_releases_what_it_held(tmp_path: Path, on_disk: Opener) -> None:
    """An assignment that was written comes again marked, uncounted, and under a higher sequence for new messages."""
    async with on_disk() as broker:
        first = await broker.enqueue("orders", b"1")
        assert await broker.poll("orders", sync="sync") is not None
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    async with Broker.open(tmp_path / "killed") as broker:
        message = await broker.poll("orders")
        assert message is not None
        assert (message.sequence, message.attempt, message.redelivered) == (first.sequence, *RELEASED)
        assert (await broker.enqueue("orders", b"2")).sequence > first.sequence + 1000


async def test_a_clean_stop_leaves_little_to_replay(on_disk: Opener) -> None:
    """The index covers all; only the tail after it is read again, however long the log is."""
    async with on_disk() as broker:
        await broker.enqueue_many("orders", [b"x"] * 20_000)
    async with on_disk() as broker:
        assert broker._runtime.restored.replayed < 10
        assert (await broker.status("orders")).ready == 20_000


async def test_what_starts_after_crashes_replay_does_not_add_up(
    tmp_path: Path, on_disk: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was replayed counts for the next index, however little each life of the broker writes."""
    async with on_disk() as broker:
        await broker.enqueue_many("orders", [b"x"] * 1000)
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    monkeypatch.setattr(upkeep, "INDEX_BYTES", 1000 * RECORD_BYTES)
    async with Broker.open(tmp_path / "killed") as broker:
        await broker.enqueue("orders", b"y")
        saved = broker._runtime.upkeep._task
        assert saved is not None
        await saved
        shutil.copytree(tmp_path / "killed", tmp_path / "killed again")
    async with Broker.open(tmp_path / "killed again") as broker:
        assert broker._runtime.restored.replayed < 10


async def test_what_waits_in_a_deep_queue_leaves_memory_and_comes_back(on_disk: Opener) -> None:
    """50,000 messages come back complete and in order, before and after a restart, and few of them are in memory."""
    count = 50_000
    bodies = [b"%d " % number + b"x" * 200 for number in range(count)]
    async with on_disk() as broker:
        await broker.enqueue_many("orders", bodies, confirm="ready")
        queue = broker._queues["orders", frozenset()]
        assert sum(len(lane.head) for lane in queue.ready._lanes.values()) < 5000
        for start in range(0, count // 2, 500):
            messages = await broker.poll_many("orders", 500)
            assert [message.body for message in messages] == bodies[start : start + 500]
            await broker.complete_many(messages, confirm="ready")
    async with on_disk() as broker:
        for start in range(count // 2, count, 500):
            messages = await broker.poll_many("orders", 500)
            assert [message.body for message in messages] == bodies[start : start + 500]
            await broker.complete_many(messages, confirm="ready")
        assert await broker.poll("orders") is None


async def test_a_late_success_after_unsubscribing_does_no_harm(on_disk: Opener) -> None:
    """What a subscriber that is gone for good once held cannot be finished, and the log stays readable."""
    async with on_disk() as broker:
        subscription = broker.subscribe(topic="news", durable="reader", work_timeout=0.02)
        await broker.publish("news", b"1")
        message = await asyncio.wait_for(anext(subscription), 5)
        while message.state.name == "ASSIGNED":  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)
        await broker.unsubscribe("news", "reader")
        refused = False
        try:
            await broker.complete(message)
        except Exception as error:  # noqa: BLE001  # which one is not promised
            refused = type(error).__name__ in {"NoObject", "NotAssigned"}
        assert refused
    async with on_disk() as broker:
        assert (await broker.topic_status("news")).subscribers == []


async def test_collecting_gives_disk_space_back(tmp_path: Path) -> None:
    """With no retention, what is settled leaves the disk; one message that waits does not pin the rest."""
    async with Broker.open(tmp_path / "data", retain_log=(0.0, 0), segment_bytes=64 * 1024) as broker:
        await broker.enqueue("orders", b"straggler", priority=0)
        for _ in range(20):
            await broker.enqueue_many("orders", [b"x" * 1000] * 100)
            await broker.complete_many(await broker.poll_many("orders", 100))
        assert await broker.collect() > 1_500_000
        assert sum(stretch.bytes for stretch in broker._runtime.store.stretches()) < 300_000
        message = await broker.poll("orders")
        assert message is not None
        assert message.body == b"straggler"


async def test_ten_thousand_leases_that_end_at_once_are_taken_in_slices(on_disk: Opener) -> None:
    """Each sweep takes a few hundred at most and lets others have their turn."""
    async with on_disk() as broker:
        await broker.enqueue_many("orders", [b"x"] * 10_000, confirm="ready")
        messages = await broker.poll_many("orders", 10_000, work_timeout=0.2)
        assert len(messages) == 10_000
        queue = broker._queues["orders", frozenset()]
        left = [len(queue.assigned)]
        while left[-1]:
            await asyncio.sleep(0)  # one turn of the loop, in which there is one sweep at most
            left.append(len(queue.assigned))
        slices = [before - after for before, after in pairwise(left)]
        assert left[0] > 5_000
        assert max(slices) <= 500


async def test_nobody_waits_for_garbage_while_the_state_is_taken(
    on_disk: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking the state of many delayed messages makes as many lists; Python's collector would walk them again and again."""
    seen: list[bool] = []
    dump = snapshot.dump

    def dumped(engine: Engine) -> dict[str, Any]:
        seen.append(gc.isenabled())
        return dump(engine)

    monkeypatch.setattr(snapshot, "dump", dumped)
    async with on_disk() as broker:
        await broker.collect()
        assert gc.isenabled()
    assert seen
    assert not any(seen)
