"""The engine as a whole: stages, sweeping in slices, the next time, and what the store has to keep."""

import pytest

from penstock.engine.effects import POSITION_BLOCK
from penstock.model.errors import NoObject
from penstock.model.records import Kind
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine with an empty queue `q`."""
    rig = Rig()
    rig.queue()
    return rig


class TestStages:
    """What a publisher hears of a message."""

    ALL = ("ready", "write", "sync", "assign", "finish", "retry", "drop")

    def test_a_message_that_succeeds(self, rig: Rig) -> None:
        """`ready` at once, `assign` with each assignment, `retry` with each counted failure, `finish` at the end."""
        rig.publish(notify=self.ALL, label=3)
        rig.fail(rig.taken())
        rig.release(rig.taken())
        rig.finish(rig.taken())

        assert rig.stages(3) == ["ready", "assign", "retry", "assign", "assign", "finish"]
        assert rig.queue().watched == {}

    def test_only_those_asked_for(self, rig: Rig) -> None:
        """A publisher hears of the stages that it has named, and of no message that names none."""
        rig.publish(notify=["finish"], label=3)
        rig.publish()
        rig.fail(rig.taken())
        rig.finish(rig.taken(), rig.taken())

        assert rig.flush().told == [(3, "finish")]

    def test_persistence_is_left_to_the_broker(self, rig: Rig) -> None:
        """`write` and `sync` are handed over with the records, and the engine watches nothing for them."""
        rig.publish(notify=["write", "sync"], label=3)
        rig.flush()

        assert [(notice.label, int(notice.stage)) for notice in rig.persist] == [(3, 6)]
        assert rig.queue().watched == {}

    def test_a_pop_has_no_assign(self, rig: Rig) -> None:
        """A popped message goes to `finish` at once."""
        rig.publish(notify=self.ALL, label=3)
        rig.drain()

        assert rig.stages(3) == ["ready", "finish"]

    @pytest.mark.parametrize("recalls", [True, False])
    def test_they_survive_a_restart(self, recalls: bool) -> None:
        """What was to be told is told by the next broker, when the publisher is there."""
        rig = Rig(recalls=recalls)
        client = rig.connect(returns=True, resume_timeout=60.0)
        rig.publish(client=client, notify=["finish"], label=3)
        for index, position in ((None, 0), (rig.index(), rig.engine.effects.position)):
            after = rig.restart(index=index, from_position=position)
            after.drain()
            assert after.stages(3) == ["finish"]
            assert after.engine.clients.by_number[client.number].missed

    def test_a_duplicate_is_told_ready(self, rig: Rig) -> None:
        """A duplicate is answered as the first one was."""
        rig.publish(dedup_id="d", notify=["ready"], label=1)
        rig.publish(dedup_id="d", notify=["ready"], label=2)

        assert (rig.stages(1), rig.stages(2)) == (["ready"], ["ready"])


class TestTime:
    """Sweeping, and when to do it next."""

    def test_nothing_is_due_by_itself(self, rig: Rig) -> None:
        """With nothing to wait for there is no next time."""
        assert rig.engine.next_time() is None

    def test_the_next_time_is_that_of_the_first(self, rig: Rig) -> None:
        """Of leases, delays, expiries and absent clients the first counts."""
        rig.publish()
        rig.taken(timeout=40.0)
        assert rig.engine.next_time() == rig.now + 40.0
        rig.publish(ttl=30.0)
        assert rig.engine.next_time() == rig.now + 30.0
        rig.publish(delay=20.0)
        assert rig.engine.next_time() == rig.now + 20.0
        rig.disconnect(rig.connect(resume_timeout=10.0))
        assert rig.engine.next_time() == rig.now + 10.0

    @pytest.mark.parametrize("what", ["leases", "delays", "expiries"])
    def test_a_sweep_does_no_more_than_its_limit(self, rig: Rig, what: str) -> None:
        """What is due at once is done in slices, and the sweep says that there is more."""
        for _ in range(10):
            rig.publish(delay=5.0 if what == "delays" else None, ttl=5.0 if what == "expiries" else None)
            if what == "leases":
                rig.taken(timeout=5.0)
        rig.now += 5.0
        done = []
        for _ in range(4):
            more = rig.engine.sweep(rig.now, 4)
            queue = rig.queue()
            done.append((10 - queue.length if what == "expiries" else queue.waiting, more))

        assert done == [(4, True), (8, True), (10, False), (10, False)]

    def test_what_comes_back_in_a_sweep_expires_in_it(self, rig: Rig) -> None:
        """What an absent client or a lease gives back too old is gone after the same sweep."""
        client = rig.connect(resume_timeout=5.0)
        for _ in range(2):
            rig.publish(ttl=5.0)
        rig.taken(client=client)
        rig.taken(timeout=5.0)
        rig.disconnect(client)
        rig.now += 5.0
        rig.engine.sweep(rig.now, 99)

        assert rig.queue().length == 0


class TestStore:
    """What the store is told."""

    def test_what_is_live(self) -> None:
        """All unsettled messages, once each, and nothing else."""
        rig = Rig()
        wanted = {rig.publish(), rig.publish(delay=5.0), rig.publish(group="g")}
        rig.finish(rig.taken())
        wanted.discard(min(wanted))
        rig.taken()
        rig.listen()
        wanted.add(rig.tell())
        found = [sequence for numbers in rig.engine.live() for sequence in numbers]

        assert sorted(found) == sorted(wanted)
        assert all(list(numbers) == sorted(numbers) for numbers in rig.engine.live())

    def test_positions_are_reserved_ahead(self, rig: Rig) -> None:
        """A reservation is written long before its positions are used."""
        rig.flush()
        assert rig.engine.effects.reserved >= rig.engine.effects.position + POSITION_BLOCK // 2
        rig.engine.effects.first += POSITION_BLOCK // 2
        rig.flush()

        assert [record[0] for record in rig.log.values()].count(28) == 2

    def test_a_clean_stop_leaves_no_gap(self, rig: Rig) -> None:
        """When the last record gives back what was reserved, counting goes on after it."""
        rig.publish()
        effects = rig.engine.effects
        effects.reserved = effects.position + 1
        effects.note(Kind.RESERVE, rig.now, subject=effects.reserved)
        last = max(rig.flush().log)
        after = rig.restart()

        assert min(position for position in after.flush().log if position > last) == last + 1

    def test_a_channel_by_its_number(self, rig: Rig) -> None:
        """Who reads the log finds a channel by its number."""
        topic = rig.topic()

        assert rig.engine.find_channel(rig.queue().number).name == "q"
        assert rig.engine.find_channel(topic.number) is topic
        with pytest.raises(NoObject):
            rig.engine.find_channel(99)

    def test_altering_to_the_same_is_no_record(self, rig: Rig) -> None:
        """Settings that change nothing are not recorded."""
        before = rig.engine.effects.position
        rig.engine.alter(key(), rig.now, {"retry_limit": 5})
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {})

        assert rig.engine.effects.position == before + 1  # the topic was made
