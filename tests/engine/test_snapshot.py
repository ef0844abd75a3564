"""A dumped engine is plain values, shares nothing with the engine, and loads into the same."""

import msgspec
import pytest

from penstock.engine import snapshot
from penstock.engine.engine import Engine
from tests.engine.oracle import Work, state_of
from tests.engine.rig import Rig


@pytest.mark.parametrize("recalls", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_dumped_and_loaded_it_is_the_same(seed: int, recalls: bool) -> None:
    """What is loaded from a dump, as it is or by way of bytes, is the state that was dumped."""
    rig = Rig(recalls=recalls)
    work = Work(rig, seed)
    for _ in range(150):
        work.step()
    rig.flush()
    for dumped in (snapshot.dump(rig.engine), msgspec.msgpack.decode(rig.index())):
        again = Engine(recall=rig.recall if recalls else None)
        snapshot.load(again, dumped)

        assert state_of(again, rig.now) == state_of(rig.engine, rig.now)
        assert again.effects.dirty == {}


def test_it_shares_nothing() -> None:
    """What happens after a dump does not change it."""
    rig = Rig(recalls=True)
    rig.publish(key="k", dedup_id="d", notify=["drop"], label=1)
    rig.topic(retain_count=5)
    rig.tell()
    state = snapshot.dump(rig.engine)
    before = msgspec.msgpack.encode(state)
    rig.tell()
    rig.drain()
    rig.publish(dedup_id="e")

    assert msgspec.msgpack.encode(state) == before


def test_bodies_stay_in_the_store() -> None:
    """With a store that recalls, no body is part of a dump; with another, all are."""
    for recalls in (True, False):
        rig = Rig(recalls=recalls)
        rig.publish(b"the body")
        rig.publish(b"the body", delay=5.0)
        rig.publish(b"the body", group="g")
        rig.taken()
        rig.listen()
        rig.tell(b"the body")

        assert rig.index().count(b"the body") == (0 if recalls else 4)
