"""Subscribers: passing and durable ones, patterns, and why a subscriber has to go."""

import pytest

from penstock.engine.consumers import Consumer
from penstock.model.errors import BadRequest, NoObject, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import State
from tests.engine.rig import Rig


@pytest.fixture(params=[False, True], ids=["resident", "recalled"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Return an engine with an empty topic `t`."""
    rig = Rig(recalls=request.param)
    rig.topic()
    return rig


def nothing_is_left(rig: Rig) -> bool:
    """Tell whether no subscriber has left anything behind."""
    agenda, subscriptions = rig.engine.agenda, rig.engine.subscriptions
    return not (
        len(agenda.delays)
        or len(agenda.expiries)
        or agenda.leases.expired(1e9, 9)
        or subscriptions.durables
        or subscriptions.wild
        or subscriptions.condemned
        or subscriptions._subscribers
        or subscriptions._owners
        or any(topic.subscribers or topic.kept() for topic in rig.engine.channels.topics.values())
    )


class TestPassing:
    """Subscribers that live with their connection."""

    def test_it_goes_with_its_connection(self, rig: Rig) -> None:
        """A passing subscriber leaves nothing behind, whatever state its messages were in."""
        client = rig.connect()
        consumer = rig.listen(client=client, credit=2)
        for ttl, delay in ((None, None), (50.0, None), (None, 50.0), (60.0, 50.0), (50.0, None)):
            rig.tell(ttl=ttl, delay=delay)
        rig.fail(rig.receive(consumer)[0])
        rig.disconnect(client)

        assert nothing_is_left(rig)
        assert len(rig.flush().gone) == 5
        rig.wait(100.0)
        assert rig.take("DLQ.topic.t") is None

    def test_what_it_held_is_settled(self, rig: Rig) -> None:
        """A message in the hands of a subscriber that went is no object any more."""
        consumer = rig.listen()
        rig.tell()
        (message,) = rig.receive(consumer)
        consumer.close(rig.now)

        assert message.state is State.SETTLED
        with pytest.raises(NoObject):
            rig.finish(message)

    def test_it_does_not_survive_a_restart(self, rig: Rig) -> None:
        """After a restart passing subscribers are gone, and nothing of theirs is kept."""
        rig.listen()
        rig.listen("*")
        rig.tell(ttl=50.0)

        assert nothing_is_left(rig.restart().restart())


class TestDurable:
    """Subscribers that are recognised by name."""

    def test_it_gets_what_it_missed(self, rig: Rig) -> None:
        """After losing its connection a durable subscriber gets all that it missed, in order."""
        client = rig.connect()
        rig.listen(durable="ann", client=client)
        rig.tell(b"1")
        rig.disconnect(client)
        rig.tell(b"2")

        assert rig.bodies(rig.listen(durable="ann")) == [b"1", b"2"]

    def test_a_disconnect_does_not_count(self, rig: Rig) -> None:
        """What a lost connection held comes again, not counted as failed, however often."""
        rig.tell()
        for _ in range(30):
            client = rig.connect()
            consumer = rig.listen(durable="ann", client=client)
            if not rig.topic().kept():
                rig.tell()
            assert rig.receive(consumer)[0].attempt == 1
            rig.disconnect(client)

    def test_names_belong_to_topics(self, rig: Rig) -> None:
        """The same name at another topic is another subscriber."""
        rig.listen("t", durable="ann")
        other = rig.listen("u", durable="ann")
        rig.tell(b"1")

        assert rig.bodies(other) == []

    def test_two_connections_share_it(self, rig: Rig) -> None:
        """A durable subscription in two hands gives each message to one of them."""
        one, other = rig.listen(durable="ann"), rig.listen(durable="ann")
        for _ in range(4):
            rig.tell()

        assert (len(rig.receive(one)), len(rig.receive(other))) == (2, 2)
        one.close(rig.now)
        rig.tell()
        assert len(rig.receive(other)) == 1

    def test_unsubscribing_removes_it(self, rig: Rig) -> None:
        """Unsubscribing for good removes the cursor and closes who uses it; a second time there is none."""
        consumer = rig.listen(durable="ann")
        rig.tell(ttl=50.0)
        rig.engine.subscriptions.unsubscribe("ann", "t", rig.now)

        assert not consumer.is_open
        assert nothing_is_left(rig)
        with pytest.raises(NoObject):
            rig.engine.subscriptions.unsubscribe("ann", "t", rig.now)

    def test_it_survives_a_restart(self, rig: Rig) -> None:
        """Its cursor is where it was."""
        consumer = rig.listen(durable="ann", credit=2)
        for number in range(4):
            rig.tell(b"%d" % number)
        first, _ = rig.receive(consumer)
        rig.finish(first)
        after = rig.restart()

        assert after.bodies(after.listen(durable="ann")) == [b"1", b"2", b"3"]

    def test_absence_has_an_end(self, rig: Rig) -> None:
        """With subscriber_expiry an absent one is removed, a present one not, and a restart begins anew."""
        rig.topic("e", subscriber_expiry=60.0)
        rig.listen("e", durable="here")
        rig.listen("e", durable="gone").close(rig.now)
        rig.wait(59.0)
        after = rig.restart()
        rig.wait(1.0)
        after.wait(59.0)

        assert [one.durable for one in rig.topic("e").subscribers.values()] == ["here"]
        assert len(after.topic("e").subscribers) == 2
        after.wait(1.0)
        assert len(after.topic("e").subscribers) == 0

    def test_there_may_be_too_many(self) -> None:
        """A subscriber over the limit is refused, and nothing is changed."""
        rig = Rig(limits=Limits(subscribers_max=1))
        rig.listen()
        before = rig.engine.effects.position

        for pattern in ("new", "*"):
            with pytest.raises(TooLarge):
                rig.listen(pattern, durable="d")
        assert rig.engine.effects.position == before
        assert (rig.engine.subscriptions.durables, rig.engine.subscriptions.wild) == ({}, {})

    def test_a_missing_topic_without_auto_create(self) -> None:
        """Without auto_create a missing topic is no object, for a durable name neither."""
        rig = Rig(auto_create=False)

        for _ in range(2):
            with pytest.raises(NoObject):
                rig.listen("none", durable="d")
        assert rig.engine.subscriptions.durables == {}


class TestPatterns:
    """Subscriptions to many topics."""

    @pytest.mark.parametrize(
        ("pattern", "fitting"),
        [
            ("news.*", {"news.eu", "news.us"}),
            ("*.eu", {"news.eu"}),
            ("news.#", {"news", "news.eu", "news.us", "news.eu.de"}),
            ("news.>", {"news", "news.eu", "news.us", "news.eu.de"}),
            ("*", {"news"}),
            ("#", {"news", "news.eu", "news.us", "news.eu.de"}),
            ("*.*.de", {"news.eu.de"}),
        ],
    )
    def test_wildcards(self, rig: Rig, pattern: str, fitting: set[str]) -> None:
        """`*` is one word, `#` or `>` the rest; topics before and after the subscription are taken."""
        rig.engine.subscriptions.delete_topic(rig.topic(), rig.now)
        names = ["news", "news.eu", "news.us", "news.eu.de"]
        rig.topic(names[0])
        rig.topic(names[1])
        consumer = rig.listen(pattern)
        for name in names:
            rig.tell(name.encode(), topic=name)

        assert {body.decode() for body in rig.bodies(consumer)} == fitting

    def test_the_rest_stands_at_the_end(self, rig: Rig) -> None:
        """`#` before the end is nonsense, and nothing is made of it."""
        with pytest.raises(BadRequest):
            rig.listen("#.x", durable="d")
        assert not rig.engine.subscriptions.durables

    def test_overlapping_ones_deliver_twice(self, rig: Rig) -> None:
        """Two subscriptions that both fit each get the message."""
        one, other = rig.listen("t"), rig.listen("*")
        rig.tell()

        assert (len(rig.receive(one)), len(rig.receive(other))) == (1, 1)

    def test_a_durable_pattern_takes_in_topics_while_nobody_is_there(self, rig: Rig) -> None:
        """Topics made while its subscriber is away, after a restart too, are part of a durable pattern."""
        rig.listen("n.*", durable="ann").close(rig.now)
        rig.tell(b"1", topic="n.a")
        after = rig.restart()
        after.tell(b"2", topic="n.b")

        assert sorted(after.bodies(after.listen("n.*", durable="ann"))) == [b"1", b"2"]

    def test_its_absence_ends_in_topics_made_meanwhile(self, rig: Rig) -> None:
        """A cursor made for somebody who is away expires as others do."""
        rig.listen("n.*", durable="ann").close(rig.now)
        topic = rig.topic("n.a", subscriber_expiry=60.0)
        rig.wait(60.0)

        assert topic.subscribers == {}

    def test_it_gets_a_new_cursor_where_its_own_expired(self, rig: Rig) -> None:
        """Who comes back to a pattern takes part in all its topics again."""
        rig.topic("n.a", subscriber_expiry=60.0)
        rig.listen("n.*", durable="ann").close(rig.now)
        rig.wait(60.0)
        consumer = rig.listen("n.*", durable="ann")
        rig.tell(topic="n.a")

        assert len(rig.receive(consumer)) == 1

    def test_unsubscribing_removes_all_of_it(self, rig: Rig) -> None:
        """A durable pattern goes with all its cursors, also in the log."""
        rig.listen("*", durable="ann")
        rig.tell()
        rig.engine.subscriptions.unsubscribe("ann", "*", rig.now)

        assert nothing_is_left(rig)
        assert nothing_is_left(rig.restart())

    def test_a_pattern_begins_earlier_too(self, rig: Rig) -> None:
        """from_seq holds in the topics that exist."""
        rig.topic("n.a", retain_count=9)
        rig.tell(b"1", topic="n.a")

        assert rig.bodies(rig.listen("n.*", from_sequence=0)) == [b"1"]


class TestCondemned:
    """Subscribers that have to go."""

    def fail_for_good(self, rig: Rig, consumer: Consumer) -> None:
        """Let a message fail until its subscriber is given up."""
        for _ in range(rig.topic().settings.max_failures or 0):
            rig.wait(1.0)
            rig.fail(*rig.receive(consumer)[:1])

    @pytest.fixture
    def doomed(self, rig: Rig) -> Consumer:
        """Return a durable consumer of a topic that gives up after three failures, with three messages."""
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"max_failures": 3})
        consumer = rig.listen(durable="ann", credit=1)
        for number in range(3):
            rig.tell(b"%d" % number)
        return consumer

    def test_too_many_failures(self, rig: Rig, doomed: Consumer) -> None:
        """After max_failures of one message its subscriber is removed, told, and loses nothing."""
        self.fail_for_good(rig, doomed)
        assert not doomed.is_open
        assert isinstance(doomed.failure, NoObject)
        assert doomed in rig.engine.effects.touched

        rig.wait(1.0)
        assert sorted(rig.drain("DLQ.topic.t")) == [b"0", b"1", b"2"]
        assert nothing_is_left(rig)
        rig.tell(b"more")
        assert rig.take("DLQ.topic.t") is None

    def test_failures_of_several_messages_do_not_add_up(self, rig: Rig, doomed: Consumer) -> None:
        """Only failures of one message count together."""
        doomed.credit = 3
        for _ in range(2):
            rig.fail(*rig.receive(doomed))
            rig.wait(1.0)

        assert doomed.is_open

    def test_what_it_holds_goes_too(self, rig: Rig, doomed: Consumer) -> None:
        """Messages that the condemned has in work are buried with the others."""
        doomed.credit = 2
        for _ in range(3):
            rig.wait(1.0)
            rig.fail(next(message for message in [*rig.receive(doomed), *rig.client.held] if message.body == b"0"))
        assert len(rig.client.held) == 1
        rig.wait(1.0)

        assert sorted(rig.drain("DLQ.topic.t")) == [b"0", b"1", b"2"]
        assert not rig.client.held

    def test_burying_is_cut_into_slices(self, rig: Rig, doomed: Consumer) -> None:
        """A sweep buries no more than its limit, delayed ones included, and nothing that comes meanwhile."""
        for _ in range(4):
            rig.tell(delay=50.0)
        self.fail_for_good(rig, doomed)
        rig.engine.sweep(rig.now, 2)
        assert rig.queue("DLQ.topic.t").length == 3
        assert rig.engine.sweep(rig.now, 2)
        rig.tell(b"not for the dead")
        rig.wait(0.0)

        assert rig.queue("DLQ.topic.t").length == 7
        assert nothing_is_left(rig)

    def test_it_goes_on_after_a_restart(self, rig: Rig, doomed: Consumer) -> None:
        """A burial that was interrupted is finished by the next broker, for passing ones too."""
        passing = rig.listen(credit=1)
        rig.tell(b"3")
        self.fail_for_good(rig, doomed)
        self.fail_for_good(rig, passing)
        rig.engine.sweep(rig.now, 1)
        after = rig.restart()
        after.wait(1.0)

        assert sorted(after.drain("DLQ.topic.t")) == [b"0", b"1", b"2", b"3", b"3"]
        assert nothing_is_left(after)

    def test_it_may_come_again_at_once(self, rig: Rig, doomed: Consumer) -> None:
        """Its name may subscribe again before the burial is over, and begins anew, also after a restart."""
        self.fail_for_good(rig, doomed)
        again = rig.listen(durable="ann")
        rig.tell(b"new")
        after = rig.restart(index=rig.index(), from_position=rig.engine.effects.position) if rig.recalls else None
        rig.wait(1.0)
        assert rig.bodies(again) == [b"new"]

        if after is not None:
            after.wait(1.0)
            assert after.bodies(after.listen(durable="ann")) == [b"new"]

    def test_one_topic_of_a_pattern(self, rig: Rig) -> None:
        """In a pattern only the cursor of that topic goes; coming again gives it a new one."""
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"max_failures": 1})
        rig.topic("u")
        consumer = rig.listen("*", durable="ann")
        rig.tell(b"bad")
        rig.fail(*rig.receive(consumer))
        rig.topic("v")
        rig.tell(b"lost")
        rig.tell(b"other", topic="u")
        assert (consumer.is_open, rig.bodies(consumer)) == (True, [b"other"])

        again = rig.listen("*", durable="ann")
        rig.tell(b"new")
        assert rig.bodies(again) == [b"new"]

    def test_too_much_waiting(self, rig: Rig) -> None:
        """With subscriber_max_bytes a subscriber for whom more waits is removed; others stay."""
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"subscriber_max_bytes": 5})
        slow, quick = rig.listen(durable="slow", credit=1), rig.listen(durable="quick")
        for _ in range(3):
            rig.tell(b"12")
            rig.finish(*rig.receive(quick))
        rig.wait(0.0)

        assert (slow.is_open, quick.is_open) == (False, True)
        assert rig.drain("DLQ.topic.t") == [b"12"] * 3

    def test_a_long_name_has_a_grave_too(self, rig: Rig) -> None:
        """The dead letter queue of a topic with the longest name has a name that is cut."""
        name = "ü" * 127
        consumer = rig.listen(name)
        rig.tell(topic=name)
        rig.reject(*rig.receive(consumer))

        (grave,) = [one for one in rig.engine.channels.queues.values() if one.name.startswith("DLQ.topic.")]
        assert len(grave.name.encode()) <= 255


class TestDeletion:
    """Topics that are deleted."""

    def test_all_of_it_goes(self, rig: Rig) -> None:
        """A deleted topic takes its messages and subscribers along, tells them, and its publishers of the drop."""
        rig.engine.channels.alter_topic(rig.topic(), rig.now, {"retain_count": 9})
        consumer = rig.listen(durable="ann", credit=1)
        for label in (1, 2):
            rig.tell(notify=["drop", "finish"], label=label, ttl=50.0)
        rig.receive(consumer)
        topic = rig.topic()

        assert rig.engine.subscriptions.delete_topic(topic, rig.now) == 2
        assert (rig.stages(1), rig.stages(2), len(rig.gone)) == (["drop"], ["drop"], 2)
        assert isinstance(consumer.failure, NoObject)
        assert nothing_is_left(rig)
        assert "t" not in rig.restart().engine.channels.topics
        with pytest.raises(NoObject):
            rig.engine.channels.topic("t")

    def test_a_pattern_stays(self, rig: Rig) -> None:
        """Who subscribed to a pattern goes on with the others, and with the topic made anew."""
        consumer = rig.listen("*")
        rig.engine.subscriptions.delete_topic(rig.topic(), rig.now)
        rig.tell(b"anew")

        assert rig.bodies(consumer) == [b"anew"]
