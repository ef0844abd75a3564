"""Handing out: credit, fairness, exclusive consumers, selectors, and several queues served as one or in turn."""

from typing import TypeVar

import pytest

from penstock.engine.consumers import HANDED_BYTES_MAX, Consumer
from penstock.engine.selection import Selection
from penstock.model.limits import Limits
from tests.engine.rig import Rig, key

Item = TypeVar("Item")


@pytest.fixture
def rig() -> Rig:
    """Return an engine with an empty queue `q`."""
    rig = Rig()
    rig.queue()
    return rig


def publish(rig: Rig, *bodies: bytes, **how: object) -> None:
    for body in bodies:
        rig.publish(body, **how)  # type: ignore[arg-type]


class TestCredit:
    """How much a consumer may hold."""

    def test_a_consumer_holds_no_more_than_its_credit(self, rig: Rig) -> None:
        """With all credit out nothing more comes; each settlement lets one more come."""
        consumer = rig.subscribe(credit=2)
        publish(rig, b"1", b"2", b"3")
        first, _ = rig.receive(consumer)
        assert rig.receive(consumer) == []

        rig.finish(first)
        assert rig.bodies(consumer) == [b"3"]

    @pytest.mark.parametrize("settles", [False, True])
    def test_large_messages_are_handed_out_little_by_little(self, rig: Rig, settles: bool) -> None:
        """Whatever its credit is: meanwhile its peer shows whether it reads, and one that does not is held."""
        consumer = rig.subscribe(credit=100, settles=settles)
        publish(rig, *[bytes(HANDED_BYTES_MAX // 2)] * 7)
        assert rig.engine.dispatch(rig.now, 100)
        assert len(consumer.inbox) == 2

        assert rig.engine.dispatch(rig.now, 100)
        assert len(consumer.inbox) == 4
        consumer.hold()
        assert not rig.engine.dispatch(rig.now, 100)
        assert len(consumer.inbox) == 4

        consumer.let_go(rig.engine.effects)
        assert len(rig.receive(consumer)) == 7

    @pytest.mark.parametrize("end", ["finish", "fail", "release", "reject", "expire", "delete"])
    def test_a_consumer_holds_no_more_bytes_than_it_may(self, end: str) -> None:
        """Bodies of what is unsettled stay in memory: many large ones are not handed out, whatever the credit."""
        rig = Rig(limits=Limits(credit_bytes_max=1000))
        rig.queue()
        consumer = rig.subscribe(credit=100, timeout=5.0)
        publish(rig, *[bytes(400)] * 5)
        first, *_ = messages = rig.receive(consumer)
        assert len(messages) == 3  # the third went over it
        assert rig.receive(consumer) == []

        if end == "expire":
            rig.wait(5.0)
        elif end == "delete":
            rig.engine.delete(key("q"), rig.now)
        else:
            getattr(rig, end)(first)
        rig.receive(consumer)
        assert consumer.held_bytes == (0 if end == "delete" else 1200)

    def test_one_message_is_handed_out_whatever_its_size(self) -> None:
        """A message that is larger than all that may be held goes out alone."""
        rig = Rig(limits=Limits(credit_bytes_max=1000))
        rig.queue()
        consumer = rig.subscribe(credit=100)
        publish(rig, bytes(5000), bytes(5000))
        (message,) = rig.receive(consumer)
        rig.finish(message)
        assert len(rig.receive(consumer)) == 1

    @pytest.mark.parametrize("end", ["finish", "fail", "release", "reject", "expire"])
    def test_every_outcome_gives_credit_back(self, rig: Rig, end: str) -> None:
        """However a message leaves a consumer's hands, it has room again."""
        consumer = rig.subscribe(credit=1, timeout=5.0)
        publish(rig, b"1", b"2")
        (message,) = rig.receive(consumer)
        rig.wait(5.0) if end == "expire" else getattr(rig, end)(message)

        assert len(rig.receive(consumer)) == 1
        assert consumer.unsettled == 1

    def test_a_slow_consumer_holds_its_credit_only(self, rig: Rig) -> None:
        """What a slow consumer has no room for goes to others."""
        slow, quick = rig.subscribe(credit=1), rig.subscribe(credit=1)
        done: list[bytes] = []
        for number in range(6):
            publish(rig, b"%d" % number)
            for message in rig.receive(quick):
                done.append(message.body)
                rig.finish(message)

        assert (len(rig.receive(slow)), len(done)) == (1, 5)

    def test_the_least_loaded_goes_first(self, rig: Rig) -> None:
        """A message goes to the consumer with the fewest unsettled ones."""
        busy = rig.subscribe()
        publish(rig, b"1", b"2")
        rig.receive(busy)
        idle = rig.subscribe()
        publish(rig, b"3", b"4")

        assert rig.bodies(idle) == [b"3", b"4"]

    def test_equals_take_turns(self, rig: Rig) -> None:
        """Consumers with equal load get equal shares."""
        consumers = [rig.subscribe() for _ in range(3)]
        publish(rig, *[b"m"] * 9)

        assert [len(rig.receive(consumer)) for consumer in consumers] == [3, 3, 3]

    def test_who_settles_at_once_has_credit_too(self, rig: Rig) -> None:
        """A consumer whose messages are settled as they go is held back until it has sent them on."""
        consumer = rig.subscribe(settles=True, credit=2)
        publish(rig, b"1", b"2", b"3")
        assert rig.bodies(consumer) == [b"1", b"2"]

        rig.engine.consumed(consumer, 2)
        assert rig.bodies(consumer) == [b"3"]

    def test_handing_out_is_cut_into_slices(self, rig: Rig) -> None:
        """One round hands out about as much as asked for and says that there is more."""
        consumer = rig.subscribe(credit=50)
        publish(rig, *[b"m"] * 20)
        rig.engine.effects.hungry[consumer] = None

        assert rig.engine.dispatch(rig.now, 5)
        assert len(consumer.inbox) == 5
        assert len(rig.receive(consumer)) == 20

    def test_a_closed_consumer_gets_nothing(self, rig: Rig) -> None:
        """After its end a consumer gets nothing and stands nowhere; what it holds stays with its client."""
        consumer = rig.subscribe()
        publish(rig, b"1")
        rig.receive(consumer)
        consumer.close(rig.now)
        consumer.close(rig.now)
        publish(rig, b"2")

        assert rig.receive(consumer) == []
        assert (rig.queue().consumers, rig.client.consumers) == ({}, {})
        assert len(rig.client.held) == 1

    def test_waiting_for_one(self, rig: Rig) -> None:
        """A fetch that waits gets the first message and ends."""
        fetch = rig.subscribe(once=True, credit=1)
        publish(rig, b"1", b"2")

        assert rig.bodies(fetch) == [b"1"]
        assert not fetch.is_open

    def test_again_is_the_same_anew(self, rig: Rig) -> None:
        """A consumer that ended can be had again with all that it asked for."""
        consumer = rig.subscribe(credit=7, exclusive=True, label=3)
        consumer.close(rig.now)
        again = consumer.again()

        assert (again.credit, again.exclusive, again.label, again.is_open) == (7, True, 3, True)


class TestExclusive:
    """Consumers that want to be the only one."""

    def test_the_first_exclusive_has_all(self, rig: Rig) -> None:
        """As long as there is an exclusive consumer nobody else gets anything, fetches and pops included."""
        shared, first, second = rig.subscribe(), rig.subscribe(exclusive=True), rig.subscribe(exclusive=True)
        publish(rig, b"1", b"2")

        assert rig.bodies(first) == [b"1", b"2"]
        publish(rig, b"3")
        assert rig.take() is None
        assert (shared.inbox, second.inbox) == ([], [])

    def test_the_next_follows(self, rig: Rig) -> None:
        """When it ends the next exclusive one follows, and then all others."""
        shared, first, second = rig.subscribe(), rig.subscribe(exclusive=True), rig.subscribe(exclusive=True)
        first.close(rig.now)
        publish(rig, b"1")
        assert rig.bodies(second) == [b"1"]

        second.close(rig.now)
        publish(rig, b"2")
        assert rig.bodies(shared) == [b"2"]

    def test_it_holds_others_back_without_credit(self, rig: Rig) -> None:
        """Others get nothing while the exclusive consumer has no credit."""
        rig.subscribe(exclusive=True, credit=1)
        shared = rig.subscribe()
        publish(rig, b"1", b"2")

        assert rig.bodies(shared) == []

    def test_fast_pops_do_not_pass_it(self, rig: Rig) -> None:
        """A pop that waits gets no message past an exclusive consumer."""
        owner = rig.subscribe(exclusive=True)
        pop = rig.subscribe(once=True, settles=True, credit=1)
        rig.publish(b"1", fast=True)

        assert rig.bodies(owner) == [b"1"]
        assert pop.inbox == []


class TestSelectors:
    """Consumers that want some messages only."""

    def test_of_a_queue_others_stay(self, rig: Rig) -> None:
        """What a selector refuses stays for others, and what it takes goes from the middle."""
        picky = rig.subscribe(selector=rig.selector(lambda headers: headers.get("to") == "x"))
        publish(rig, b"1", b"2", headers={"to": "y"})
        publish(rig, b"3", headers={"to": "x"})

        assert rig.bodies(picky) == [b"3"]
        assert rig.drain() == [b"1", b"2"]

    def test_a_message_comes_back_to_its_place(self, rig: Rig) -> None:
        """A message that was taken from the middle may fail and be taken again, many times."""
        picky = rig.subscribe(selector=rig.selector(lambda headers: "x" in headers))
        publish(rig, b"1")
        publish(rig, b"2", headers={"x": ""})
        publish(rig, b"3")
        for _ in range(4):
            rig.release(*rig.receive(picky))
        picky.close(rig.now)

        assert rig.drain() == [b"1", b"2", b"3"]

    def test_fields_can_be_asked_for(self, rig: Rig) -> None:
        """Selectors see priority and sequence besides headers."""
        publish(rig, b"1", priority=3)
        publish(rig, b"2", priority=7)
        urgent = rig.engine.selected_by(lambda _, fields: fields["JMSPriority"] > 5)

        assert rig.taken(selector=urgent).body == b"2"

    def test_what_expired_is_left_to_the_sweeper(self, rig: Rig) -> None:
        """A selector gets no message past its ttl."""
        publish(rig, b"1", ttl=1.0)
        rig.now += 1.0

        assert rig.take(selector=lambda record: True) is None

    def test_priority_holds_among_those_wanted(self, rig: Rig) -> None:
        """Of the messages that it wants a selector gets the most urgent first, returned ones in their place."""
        everything = rig.selector(lambda headers: True)
        publish(rig, b"1", b"2")
        publish(rig, b"3", priority=9)
        rig.release(rig.taken(selector=everything))

        assert [rig.taken(selector=everything).body for _ in range(3)] == [b"3", b"1", b"2"]


class TestSeveralQueues:
    """Queues chosen by name and tags."""

    @pytest.fixture
    def tagged(self) -> Rig:
        """Return an engine with q, q{a}, q{a,b}, q{b} and q{c}, and another name."""
        rig = Rig()
        for tags in ("", "a", "ab", "b", "c"):
            rig.publish(b"q" + tags.encode(), tags=tags)
        rig.publish(b"other", name="other", tags="a")
        return rig

    @pytest.mark.parametrize(
        ("tags", "match", "expected"),
        [
            (None, "exact", [b"q", b"qa", b"qab", b"qb", b"qc"]),
            (None, "any", [b"q", b"qa", b"qab", b"qb", b"qc"]),
            ("", "exact", [b"q"]),
            ("", "strict", [b"q"]),
            ("", "combined", [b"q"]),
            ("", "any", [b"q"]),
            ("a", "exact", [b"qa"]),
            ("a", "strict", [b"qa", b"qab"]),
            ("ab", "strict", [b"qab"]),
            ("ac", "combined", [b"qa", b"qab", b"qc"]),
            ("ac", "any", [b"qa", b"qab", b"qc"]),
            ("x", "exact", []),
            ("x", "any", []),
        ],
    )
    def test_which_are_meant(self, tagged: Rig, tags: str | None, match: str, expected: list[bytes]) -> None:
        """Tags and match say which queues of the name are meant, for fetches as for subscriptions."""
        assert tagged.bodies(tagged.subscribe(tags=tags, match=match, credit=100)) == expected

        tagged.release(*tagged.client.held)
        assert tagged.drain(tags=tags, match=match) == expected

    @pytest.mark.parametrize(("tags", "match"), [(None, "exact"), ("a", "exact"), ("a", "strict"), ("az", "any")])
    def test_queues_that_come_later_are_meant_too(self, tags: str | None, match: str) -> None:
        """A subscription takes from queues that are made after it, if they fit."""
        rig = Rig()
        consumer = rig.subscribe(tags=tags, match=match)
        rig.publish(b"in", tags="a")
        rig.publish(b"out", name="other", tags="a")

        assert rig.bodies(consumer) == [b"in"]
        consumer.close(rig.now)
        rig.publish(b"out", tags="ab")
        assert rig.bodies(consumer) == []

    @pytest.mark.parametrize(("tags", "match"), [(None, "exact"), ("s", "strict"), ("ab", "combined")])
    def test_served_as_one(self, rig: Rig, tags: str | None, match: str) -> None:
        """The highest priority goes first, then the oldest, across all queues."""
        for number, (mine, priority) in enumerate([("as", 4), ("bs", 4), ("as", 9), ("bs", 9), ("as", 4), ("bs", 0)]):
            rig.publish(b"%d" % number, tags=mine, priority=priority)
        expected = [b"2", b"3", b"0", b"1", b"4", b"5"]
        assert rig.bodies(rig.subscribe(tags=tags, match=match)) == expected

        rig.release(*rig.client.held)
        next(iter(rig.client.consumers)).close(rig.now)
        assert rig.drain(tags=tags, match=match) == expected

    def test_served_as_one_with_one_credit(self, rig: Rig) -> None:
        """The order across queues holds when each message comes after the one before."""
        consumer = rig.subscribe(match="combined", tags="ab", credit=1)
        for number, tag in enumerate("abbaab"):
            rig.publish(b"%d" % number, tags=tag)
        got: list[bytes] = []
        while messages := rig.receive(consumer):
            got += [message.body for message in messages]
            rig.finish(*messages)

        assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]

    @pytest.mark.parametrize("subscribed", [True, False])
    def test_taking_turns(self, rig: Rig, subscribed: bool) -> None:
        """A busy queue cannot starve the others: each is served in turn, for subscriptions and for fetches."""
        publish(rig, *[b"busy"] * 10, tags="a", priority=9)
        publish(rig, b"b", b"b", tags="b")
        publish(rig, b"c", tags="c")
        if subscribed:
            got = rig.bodies(rig.subscribe(tags="abc", match="any", credit=6))
        else:
            got = [rig.taken(tags="abc", match="any").body for _ in range(6)]

        assert got == [b"busy", b"b", b"c", b"busy", b"b", b"busy"]

    def test_a_paused_queue_does_not_stop_the_others(self, rig: Rig) -> None:
        """Of queues served as one, a paused one is passed over."""
        publish(rig, b"1", tags="a")
        publish(rig, b"2", tags="b")
        rig.engine.alter(key("q", "a"), rig.now, {"paused": True})

        assert rig.drain(tags="ab", match="combined") == [b"2"]

    def test_held_back_groups_do_not_stop_the_others(self, rig: Rig) -> None:
        """A queue whose messages wait behind their group is passed over, and goes on with its consumer."""
        publish(rig, b"1", b"3", tags="a", group="g")
        publish(rig, b"2", tags="b")
        consumer = rig.subscribe(tags="ab", match="combined")

        assert sorted(rig.bodies(consumer)) == [b"1", b"2", b"3"]

    def test_many_at_once(self, rig: Rig) -> None:
        """Several messages can be fetched in one go, in order, as many as there are."""
        publish(rig, b"1", b"2", b"3")
        consumer: Consumer = rig.consumer(credit=5)
        messages = rig.engine.take_many(consumer, Selection("q"), rig.now, 2)

        assert [message.body for message in messages] == [b"1", b"2"]
        assert not consumer.is_open


class TestFastPop:
    """Messages that go to a pop before they are stored."""

    def pop(self, rig: Rig) -> Consumer:
        """Return a pop that waits."""
        return rig.subscribe(once=True, settles=True, credit=1)

    def test_a_waiting_pop_gets_it_unstored(self, rig: Rig) -> None:
        """The log has one record of it, the queue is as before, and `ready` arrives as `finish`."""
        pop = self.pop(rig)
        sequence = rig.publish(b"1", fast=True, notify=["ready"], label=1)
        rig.flush()

        assert rig.bodies(pop) == [b"1"]
        assert [record[0] for record in rig.log.values()].count(8) == 1
        assert (rig.queue().length, rig.queue().bytes, sequence in rig.gone) == (0, 0, False)
        assert rig.stages(1) == ["finish"]

    def test_persistence_is_still_told(self, rig: Rig) -> None:
        """Who wants to know of `sync` is told when the log has learnt of it."""
        self.pop(rig)
        rig.publish(fast=True, notify=["sync"], label=1)

        assert [notice.label for notice in rig.flush().persist] == [1]

    @pytest.mark.parametrize("said", [{"dedup_id": "d"}, {"delay": 1.0}, {"group": "g"}, {"key": "k"}, {"ttl": 9.0}])
    def test_what_excludes_it(self, rig: Rig, said: dict[str, object]) -> None:
        """A message with dedup_id, delay, group, key or ttl is stored first."""
        self.pop(rig)
        rig.publish(fast=True, **said)  # type: ignore[arg-type]

        assert [record[0] for record in rig.flush().log.values()].count(8) == 0

    @pytest.mark.parametrize("settings", [{"paused": True}, {"max_length": 9}, {"ttl": 9.0}])
    def test_which_queues_exclude_it(self, rig: Rig, settings: dict[str, object]) -> None:
        """A queue that is paused or bounded stores first."""
        rig.engine.alter(key(), rig.now, settings)
        self.pop(rig)
        rig.publish(fast=True)

        assert [record[0] for record in rig.flush().log.values()].count(8) == 0

    def test_it_passes_nobody_that_waits(self, rig: Rig) -> None:
        """A message goes no faster than those that wait in the queue, nor to whom it does not suit."""
        rig.publish(b"1")
        pop = self.pop(rig)
        rig.publish(b"2", fast=True)
        picky = rig.subscribe(once=True, settles=True, credit=1, selector=lambda record: False)
        rig.publish(b"3", fast=True)

        assert rig.bodies(pop) == [b"1"]
        assert picky.inbox == []

    def test_without_a_pop_it_is_stored(self, rig: Rig) -> None:
        """A subscription or a fetch that waits has nothing to do with it, nor a missing queue."""
        rig.subscribe()
        rig.publish(fast=True)
        rig.publish(fast=True, name="new")

        assert [record[0] for record in rig.flush().log.values()].count(1) == 2


class TestMany:
    """More than a few consumers and queues."""

    def test_a_crowd_is_served_evenly(self, rig: Rig) -> None:
        """With more consumers than are compared each time, all get their share."""
        consumers = [rig.subscribe() for _ in range(30)]
        publish(rig, *[b"m"] * 90)

        assert [len(rig.receive(consumer)) for consumer in consumers] == [3] * 30

    def test_who_is_refused_does_not_stop_the_others(self, rig: Rig) -> None:
        """A message that many selectors refuse goes to the one that wants it."""
        for _ in range(20):
            rig.subscribe(selector=rig.selector(lambda headers: False))
        willing = rig.subscribe()
        publish(rig, b"1", b"2")

        assert rig.bodies(willing) == [b"1", b"2"]

    def test_joining_twice_is_joining_once(self, rig: Rig) -> None:
        """A consumer takes from a queue once, however often it is told to."""
        consumer = rig.subscribe(exclusive=True)
        consumer.join(rig.queue())

        assert rig.queue().exclusives == 1
