"""An engine that starts from the log, or from an index and what came after it, is the one that wrote them."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest

from penstock.engine import queue as queue_module
from penstock.engine import ready as ready_module
from penstock.engine import snapshot
from penstock.engine.engine import Engine
from penstock.engine.replay import APPLY, Replay
from penstock.model.records import Kind, Record
from tests.engine.oracle import Work, check, state_of
from tests.engine.rig import Rig

STEPS = 250
SEEDS = range(12)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let messages leave memory early."""
    monkeypatch.setattr(ready_module, "HEAD_RECORDS", 3)
    monkeypatch.setattr(queue_module, "HEAD_RECORDS", 2)
    monkeypatch.setattr(ready_module, "RECALL_RECORDS", 2)
    monkeypatch.setattr(ready_module, "TOMBSTONES_MIN", 4)


class Index(NamedTuple):
    """A saved state, the position that it was saved at, and what was gone by then: the store may have let go of it."""

    state: bytes | None
    position: int
    gone: frozenset[int]


def rebuilt(rig: Rig, index: Index) -> Engine:
    """Return an engine made of an index and all records after it, without beginning to use it."""

    def recall(sequences: Sequence[int]) -> list[Record]:
        assert index.gone.isdisjoint(sequences)
        return [rig.log[sequence] for sequence in sequences]

    engine = Engine(recall=recall if rig.recalls else None)
    if index.state is not None:
        snapshot.load(engine, msgspec.msgpack.decode(index.state))
    replay = Replay(engine)
    positions = [one for one in sorted(rig.log) if one >= index.position]
    replay.apply(positions, [rig.log[one] for one in positions])
    replay._fill_hollow()
    for topic in engine.channels.topics.values():
        topic.retain(rig.now)
    return engine


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("recalls", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_replayed_engine_is_the_live_one(seed: int, recalls: bool) -> None:
    """At any moment, from all records and from an earlier index with what came after, the state is the same."""
    rig = Rig(recalls=recalls)
    work = Work(rig, seed)
    indexes = [Index(None, 0, frozenset())]
    for step in range(STEPS):
        work.step()
        check(rig.engine)
        if step % 25 == 24:
            rig.flush()
            for topic in rig.engine.channels.topics.values():
                topic.retain(rig.now)
            live = state_of(rig.engine, rig.now)
            for index in indexes:
                again = state_of(rebuilt(rig, index), rig.now)
                for part, expected in live.items():
                    assert again[part] == expected, (step, index.position, part)
            indexes.append(Index(rig.index(), rig.engine.effects.position, frozenset(rig.flush().gone)))
            del indexes[1:-2]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("recalls", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_work_goes_on_through_restarts(seed: int, recalls: bool) -> None:
    """Started again and again, from the log or from an index, the engine goes on, and every life can be replayed."""
    rig = Rig(recalls=recalls)
    work = Work(rig, seed)
    index, position = None, 0
    for step in range(STEPS):
        work.step()
        if step % 40 == 17:
            rig.flush()
            index, position = (rig.index(), rig.engine.effects.position) if step % 80 == 17 else (None, 0)
        if step % 40 == 39:
            rig = rig.restart(index=index, from_position=position)
            work.move_to(rig)
        check(rig.engine)
    assert rebuilt(rig.flush(), Index(None, 0, frozenset())).channels.queues.keys() == rig.engine.channels.queues.keys()


def test_a_restart_leaves_nothing_to_those_who_cannot_come_back() -> None:
    """After a start nobody holds anything but clients that can return, and everything that waits can be taken."""
    rig = Rig(recalls=True)
    for number in range(5):
        rig.publish(b"%d" % number, delay=5.0 if number == 3 else None)
    kept = rig.connect(returns=True, resume_timeout=60.0)
    rig.taken(client=kept)
    rig.taken()
    after = rig.restart()
    after.wait(5.0)

    assert after.drain() == [b"1", b"2", b"3", b"4"]
    assert [message.body for message in after.engine.clients.by_number[kept.number].held] == [b"0"]


def test_every_kind_of_record_can_be_applied() -> None:
    """No kind was forgotten."""
    assert set(APPLY) == set(Kind)


def test_totals_survive() -> None:
    """What was counted is counted after a restart."""
    rig = Rig(recalls=True)
    for _ in range(6):
        rig.publish()
    rig.finish(rig.taken())
    rig.reject(rig.taken())
    rig.release(rig.taken())
    rig.fail(rig.taken())
    rig.taken(settles=True)
    rig.subscribe(once=True, settles=True, credit=1, name="fast")
    rig.queue("fast")
    rig.publish(name="fast", fast=True)
    totals = [queue.totals.as_dict() for queue in rig.engine.channels.queues.values()]

    assert [queue.totals.as_dict() for queue in rig.restart().engine.channels.queues.values()] == totals


@pytest.mark.parametrize("is_indexed", [True, False])
def test_ids_in_use_are_not_given_again(is_indexed: bool) -> None:
    """Those that messages have are kept, those of settled ones are free, and the next is the lowest that was never given."""
    rig = Rig(recalls=True)
    for _ in range(5):
        rig.publish()
    first, second, third = rig.taken(), rig.taken(), rig.taken()
    rig.finish(second)
    index = rig.index() if is_indexed else None
    after = rig.restart(index=index, from_position=rig.engine.effects.position if is_indexed else 0)
    again = [after.taken() for _ in range(4)]

    assert [message.id for message in again[:2]] == [first.id, third.id]
    assert {message.id for message in again} == {1, 2, 3, 4}
