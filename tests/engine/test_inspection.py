"""Looking does not disturb, and tells what is there."""

import pytest

from penstock.engine import inspection
from penstock.engine import ready as ready_module
from penstock.engine.inspection import QueueStatus, TopicStatus
from tests.engine.rig import Rig, key


def status(rig: Rig, *tags: str) -> QueueStatus:
    channels = rig.engine.channels
    return inspection.queue_status(
        channels.queues[key("q", *tags)], channels.queues, rig.now, rig.engine.clients.by_number
    )


def topic_status(rig: Rig) -> TopicStatus:
    return inspection.topic_status(rig.topic(), rig.engine.clients.by_number)


class TestQueues:
    """The state of a queue."""

    def test_counts(self) -> None:
        """Ready, assigned, delayed and dead messages are counted, and who takes and gives."""
        rig = Rig()
        for said in ({}, {}, {}, {"delay": 5.0}, {"group": "g"}, {"group": "g"}):
            rig.publish(b"12", **said)
        rig.taken()
        rig.reject(rig.taken())
        rig.subscribe(selector=lambda record: False)
        seen = status(rig)

        assert (seen.ready, seen.assigned, seen.delayed, seen.dead_letters) == (3, 1, 1, 1)
        assert (seen.consumers, seen.publishers, seen.bytes) == (1, 1, 10)
        assert seen["settings"]["retry_limit"] == 5
        assert seen.as_dict()["totals"]["published"] == 6
        with pytest.raises(KeyError):
            seen["nothing"]

    def test_publishers_are_open_connections(self) -> None:
        """Who published and went is no publisher, be it for good or for now."""
        rig = Rig()
        rig.publish()
        clients = [rig.connect(), rig.connect(resume_timeout=60.0)]
        for client in clients:
            rig.publish(client=client)
            rig.tell(client=client)
        assert (status(rig).publishers, topic_status(rig).publishers) == (3, 2)

        for client in clients:
            rig.disconnect(client)
        assert (status(rig).publishers, topic_status(rig).publishers) == (1, 0)

    @pytest.mark.parametrize("recalls", [False, True])
    def test_the_oldest_that_could_go(self, recalls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The age is that of the oldest message that could be handed out, fresh or returned."""
        monkeypatch.setattr(ready_module, "HEAD_RECORDS", 1)
        rig = Rig(recalls=recalls)
        rig.queue()
        assert status(rig).oldest_age_seconds is None
        rig.publish(delay=1e6)
        rig.now += 10.0
        rig.publish(priority=9)
        rig.now += 10.0
        rig.publish(priority=0)
        rig.publish(priority=0)
        assert status(rig).oldest_age_seconds == 10.0

        first = rig.taken()
        assert status(rig).oldest_age_seconds == 0.0
        rig.release(first)
        assert status(rig).oldest_age_seconds == 10.0


class TestTopics:
    """The state of a topic."""

    def test_counts(self) -> None:
        """Subscribers with what waits for each, and what the topic keeps."""
        rig = Rig()
        one, other = rig.listen(durable="ann"), rig.listen()
        for _ in range(3):
            rig.tell(b"12")
        rig.tell(b"12", delay=5.0)
        rig.finish(*rig.receive(one)[1:])
        rig.receive(other)
        one.close(rig.now)
        seen = topic_status(rig)

        assert (seen.topic, seen.kept, seen.bytes, seen.waiting) == ("t", 4, 8, 2)
        assert [(sub.name, sub.connected, sub.waiting, sub.assigned, sub.bytes) for sub in seen.subscribers] == [
            ("ann", False, 1, 1, 4),
            (None, True, 1, 3, 8),
        ]

    def test_what_is_gone_behind_an_old_one_is_not_kept(self) -> None:
        """Settled messages do not count though an older one is still open."""
        rig = Rig()
        consumer = rig.listen()
        for _ in range(5):
            rig.tell(b"1")
        _, *others = rig.receive(consumer)
        rig.finish(*others)

        assert (topic_status(rig).kept, topic_status(rig).bytes) == (1, 1)


class TestPeeking:
    """Messages as they wait."""

    @pytest.mark.parametrize("recalls", [False, True])
    def test_in_their_order(self, recalls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """First what goes out first, then held back, delayed and assigned ones; nothing changes by it."""
        monkeypatch.setattr(ready_module, "HEAD_RECORDS", 1)
        monkeypatch.setattr("penstock.engine.queue.HEAD_RECORDS", 0)
        rig = Rig(recalls=recalls)
        for body, said in (
            (b"assigned", {"priority": 9}),
            (b"second", {}),
            (b"third", {"headers": {"a": "b"}}),
            (b"first", {"priority": 8}),
            (b"delayed", {"delay": 5.0}),
            (b"group", {"group": "g", "priority": 1}),
            (b"held back", {"group": "g", "priority": 0}),
        ):
            rig.publish(body, **said)
        rig.taken()
        rig.fail(rig.taken())
        before = rig.engine.effects.position
        seen = inspection.peek(rig.queue(), 0, 99)

        assert [(one.body, one.state, one.attempt) for one in seen] == [
            (b"first", "ready", 2),
            (b"second", "ready", 1),
            (b"third", "ready", 1),
            (b"group", "ready", 1),
            (b"delayed", "delayed", 1),
            (b"held back", "ready", 1),
            (b"assigned", "assigned", 1),
        ]
        assert seen[2].headers == {"a": "b"}
        assert [one.body for one in inspection.peek(rig.queue(), 1, 2)] == [b"second", b"third"]
        assert rig.engine.effects.position == before
