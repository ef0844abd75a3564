"""Topics: every subscriber gets every message, and a message stays until all have settled it."""

import pytest

from penstock.engine import topic as topic_module
from penstock.engine.topic import Topic
from penstock.model.errors import BadRequest
from tests.engine.rig import Rig


@pytest.fixture(params=[False, True], ids=["resident", "recalled"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Return an engine with an empty topic `t`, that keeps its records or recalls them."""
    rig = Rig(recalls=request.param)
    rig.topic()
    return rig


def kept(topic: Topic) -> list[int]:
    return [topic.sequences[index] for index in topic.kept()]


class TestDelivery:
    """Messages to subscribers."""

    def test_every_subscriber_gets_every_message(self, rig: Rig) -> None:
        """Each subscriber gets all from its subscription on, in order."""
        rig.tell(b"before")
        one = rig.listen()
        rig.tell(b"1")
        other = rig.listen()
        rig.tell(b"2")

        assert rig.bodies(one) == [b"1", b"2"]
        assert rig.bodies(other) == [b"2"]

    def test_a_message_is_gone_when_all_have_settled_it(self, rig: Rig) -> None:
        """The last subscriber's settlement ends a message, and the store is told once."""
        one, other = rig.listen(), rig.listen()
        sequence = rig.tell()
        rig.finish(*rig.receive(one))
        assert rig.flush().gone == []

        rig.finish(*rig.receive(other))
        assert rig.flush().gone == [sequence]
        assert kept(rig.topic()) == []

    def test_priority_does_not_matter(self, rig: Rig) -> None:
        """A topic's messages go in the order of their sequences, whatever their priority."""
        consumer = rig.listen()
        for number in range(3):
            attributes = rig.attributes()
            rig.engine.publish_topic("t", b"%d" % number, rig.now, rig.client, number, attributes)

        assert rig.bodies(consumer) == [b"0", b"1", b"2"]

    @pytest.mark.parametrize("pattern", ["*", "a.*", "a.#", ">"])
    def test_a_pattern_is_no_topic(self, rig: Rig, pattern: str) -> None:
        """It would be one that nobody could subscribe to alone."""
        with pytest.raises(BadRequest):
            rig.tell(topic=pattern)
        with pytest.raises(BadRequest):
            rig.topic(pattern)
        assert list(rig.engine.channels.topics) == ["t"]

    def test_publishing_creates(self, rig: Rig) -> None:
        """The first message makes a topic, and without a subscriber it is gone at once."""
        sequence = rig.tell(topic="new")

        assert rig.flush().gone == [sequence]

    def test_delays_and_ttl(self, rig: Rig) -> None:
        """A delayed message is not handed out before its time, an expired one not at all."""
        consumer = rig.listen()
        rig.tell(b"later", delay=5.0)
        rig.tell(b"short", ttl=5.0)
        rig.tell(b"now")
        rig.wait(5.0)

        assert rig.bodies(consumer) == [b"later", b"now"]
        assert rig.taken("DLQ.topic.t").headers["death-reason"] == "expired"

    def test_the_topic_has_a_ttl_of_its_own(self, rig: Rig) -> None:
        """A topic's ttl holds for messages without one."""
        rig.topic("short", ttl=5.0)
        consumer = rig.listen("short")
        rig.tell(topic="short")
        rig.tell(topic="short", ttl=50.0)
        rig.wait(5.0)

        assert len(rig.receive(consumer)) == 1

    def test_a_paused_topic_hands_nothing_out(self, rig: Rig) -> None:
        """A topic can be paused and goes on."""
        consumer = rig.listen()
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"paused": True})
        rig.tell()
        assert rig.receive(consumer) == []

        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"paused": False})
        assert len(rig.receive(consumer)) == 1


class TestFailure:
    """Messages that a subscriber refuses."""

    def test_it_comes_again_after_retry_delay(self, rig: Rig) -> None:
        """A refused message comes again to that subscriber only, a second later by default."""
        one, other = rig.listen(), rig.listen()
        rig.tell()
        rig.finish(*rig.receive(other))
        rig.fail(*rig.receive(one))
        rig.wait(0.9)
        assert rig.receive(one) == []

        rig.wait(0.1)
        (again,) = rig.receive(one)
        assert (again.attempt, again.redelivered) == (2, True)
        assert rig.receive(other) == []

    def test_an_expired_lease_counts_too(self, rig: Rig) -> None:
        """A lease that ends is a failure."""
        consumer = rig.listen(timeout=5.0)
        rig.tell()
        rig.receive(consumer)
        rig.wait(5.0)
        rig.wait(1.0)

        assert rig.receive(consumer)[0].attempt == 2

    def test_a_rejected_message_goes_to_the_topics_dead_letters(self, rig: Rig) -> None:
        """A rejected message is buried with topic and subscriber; others have it still."""
        one, other = rig.listen(durable="ann"), rig.listen()
        rig.tell(b"bad")
        rig.reject(*rig.receive(one))
        letter = rig.taken("DLQ.topic.t")

        assert (letter.headers["original-topic"], letter.headers["original-subscriber"]) == ("t", "ann")
        assert rig.bodies(other) == [b"bad"]

    def test_a_late_finish(self, rig: Rig) -> None:
        """A subscriber may finish late, too."""
        consumer = rig.listen(timeout=5.0)
        sequence = rig.tell()
        (message,) = rig.receive(consumer)
        rig.wait(5.0)

        assert message.cursor.finish(message, rig.now) is True
        assert rig.flush().gone == [sequence]


class TestSelectors:
    """Subscribers that want some messages only."""

    def test_what_is_not_wanted_is_settled(self, rig: Rig) -> None:
        """A message that the selector refuses is settled for this subscriber."""
        consumer = rig.listen(selector=rig.selector(lambda headers: "x" in headers))
        unwanted = rig.tell(b"1")
        rig.tell(b"2", headers={"x": ""})

        assert rig.bodies(consumer) == [b"2"]
        assert rig.flush().gone == [unwanted]

    def test_a_lapsed_message_that_another_does_not_want(self, rig: Rig) -> None:
        """Settled by a selector after it lapsed, a message cannot be finished late and counted twice."""
        everything = rig.listen(durable="d", timeout=5.0)
        other = rig.listen(durable="other")
        sequence = rig.tell()
        (message,) = rig.receive(everything)
        everything.close(rig.now)
        rig.listen(durable="d", selector=lambda record: False)
        rig.wait(5.0)
        rig.wait(1.0)
        rig.receive(other)

        with pytest.raises(Exception, match="settled already"):
            rig.finish(message)
        assert kept(rig.topic()) == [sequence]
        assert (message.cursor.lapsed, message.cursor.free_ids, message.cursor.bytes) == ({}, [message.id], 0)


class TestRetention:
    """What a topic keeps for subscribers to come."""

    def test_nothing_by_default(self, rig: Rig) -> None:
        """Without retention a new subscriber gets what others still wait for, if it begins earlier."""
        first = rig.tell(b"1")
        slow = rig.listen()
        rig.tell(b"2")
        late = rig.listen(from_sequence=first)

        assert rig.bodies(late) == [b"2"]
        assert rig.bodies(slow) == [b"2"]

    def test_by_count(self, rig: Rig) -> None:
        """retain_count keeps the last so many."""
        rig.topic("c", retain_count=2)
        sequences = [rig.tell(b"%d" % number, topic="c") for number in range(4)]

        assert rig.bodies(rig.listen("c", from_sequence=0)) == [b"2", b"3"]
        assert rig.flush().gone == sequences[:2]

    def test_by_bytes(self, rig: Rig) -> None:
        """retain_bytes keeps the last so many bytes."""
        rig.topic("b", retain_bytes=5)
        for body in (b"12", b"345", b"67"):
            rig.tell(body, topic="b")

        assert rig.bodies(rig.listen("b", from_sequence=0)) == [b"345", b"67"]

    def test_by_age(self, rig: Rig) -> None:
        """retain_age keeps the last so many seconds, and the sweeper lets go of the others."""
        rig.topic("a", retain_age=10.0)
        rig.tell(b"1", topic="a")
        rig.now += 5.0
        rig.tell(b"2", topic="a")
        rig.wait(6.0)

        assert rig.bodies(rig.listen("a", from_sequence=0)) == [b"2"]
        rig.wait(10.0)
        assert kept(rig.topic("a")) == [rig.topic("a").sequences[-1]]  # the subscriber has it still

    def test_all_limits_hold(self, rig: Rig) -> None:
        """With several limits the strictest counts."""
        rig.topic("m", retain_count=3, retain_bytes=2, retain_age=1e6)
        for _ in range(5):
            rig.tell(topic="m")

        assert len(kept(rig.topic("m"))) == 2

    def test_from_a_sequence(self, rig: Rig) -> None:
        """A subscriber begins at the sequence that it names."""
        rig.topic("c", retain_count=9)
        rig.tell(b"1", topic="c")
        second = rig.tell(b"2", topic="c")
        rig.tell(b"3", topic="c")

        assert rig.bodies(rig.listen("c", from_sequence=second)) == [b"2", b"3"]

    def test_a_retained_message_is_told_finished_once(self, rig: Rig) -> None:
        """A retained message may be settled by later subscribers and is finished once."""
        rig.topic("c", retain_count=9)
        rig.tell(topic="c", notify=["finish"], label=1)
        for _ in range(2):
            consumer = rig.listen("c", from_sequence=0)
            rig.finish(*rig.receive(consumer))

        assert rig.stages(1) == ["finish"]

    def test_delays_and_ttl_hold_for_who_comes_later(self, rig: Rig) -> None:
        """Who begins earlier gets a delayed message at its time, and an expired one not at all."""
        rig.topic("c", retain_count=9)
        rig.tell(b"delayed", topic="c", delay=10.0)
        rig.tell(b"short", topic="c", ttl=5.0)
        rig.tell(b"long", topic="c", ttl=20.0)
        rig.tell(b"plain", topic="c")
        rig.wait(5.0)
        consumer = rig.listen("c", from_sequence=0, credit=2)
        assert rig.bodies(consumer) == [b"long", b"plain"]

        consumer.credit = 9
        rig.release(*rig.client.held)
        rig.wait(15.0)
        assert rig.bodies(consumer) == [b"delayed", b"plain"]
        assert rig.topic("c").timed.keys() <= set(kept(rig.topic("c")))

    def test_less_can_be_retained_from_now_on(self, rig: Rig) -> None:
        """Altered to retain less, a topic lets go at once."""
        rig.topic("c", retain_count=9)
        for _ in range(5):
            rig.tell(topic="c")
        rig.engine.channels.alter_topic(rig.topic("c"), rig.now, {"retain_count": 1})

        assert len(rig.flush().gone) == 4

    def test_a_slow_subscriber_does_not_pin_what_others_settled(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Behind one old unsettled message the settled ones are gone, and the columns are cut when it ends."""
        monkeypatch.setattr(topic_module, "_DRAINED_MIN", 4)
        consumer = rig.listen()
        for _ in range(10):
            rig.tell()
        first, *others = rig.receive(consumer)
        rig.finish(*others)
        assert kept(rig.topic()) == [first.sequence]

        rig.finish(first)
        assert (len(rig.flush().gone), len(rig.topic().sequences), rig.topic().horizon) == (10, 0, 0)


class TestNotices:
    """What a publisher is told of a topic."""

    def test_assign_at_the_first_and_finish_at_the_last(self, rig: Rig) -> None:
        """The first assignment is told, and the last settlement."""
        one, other = rig.listen(), rig.listen()
        rig.tell(notify=["assign", "finish", "retry"], label=1)
        messages = [*rig.receive(one), *rig.receive(other)]
        rig.finish(messages[0])
        assert rig.stages(1) == ["assign"]

        rig.finish(messages[1])
        assert rig.stages(1) == ["assign", "finish"]

    def test_each_retry(self, rig: Rig) -> None:
        """Each counted failure is told."""
        consumer = rig.listen()
        rig.tell(notify=["retry"], label=1)
        rig.fail(*rig.receive(consumer))

        assert rig.stages(1) == ["retry"]

    def test_at_once_if_there_is_nobody(self, rig: Rig) -> None:
        """Without subscribers a message is finished at once, and nothing is watched."""
        rig.tell(notify=["finish"], label=1)

        assert rig.stages(1) == ["finish"]
        assert rig.topic().watched == {}

    def test_an_unsubscription_settles(self, rig: Rig) -> None:
        """When the last that had it open goes, a message is finished."""
        consumer = rig.listen()
        rig.tell(notify=["finish"], label=1)
        consumer.close(rig.now)

        assert rig.stages(1) == ["finish"]

    def test_assign_is_not_told_again_after_a_restart(self) -> None:
        """A restart does not forget that the first assignment was told."""
        rig = Rig(recalls=True)
        client = rig.connect(returns=True, resume_timeout=60.0)
        rig.listen("t", durable="a", client=client)
        rig.listen("t", durable="b", client=client)
        rig.tell(notify=["assign"], label=1, client=client)
        rig.receive(next(iter(client.consumers)))
        after = rig.restart()
        for name in "ab":
            after.receive(after.listen("t", durable=name))

        assert after.stages(1) == []
