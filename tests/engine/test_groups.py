"""Message groups: in order, to one consumer at a time."""

import pytest

from penstock.engine.consumers import Consumer
from penstock.model.message import Message
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine whose queue `q` has a1, a2, a3 of group a and b1 of group b."""
    rig = Rig()
    for body in (b"a1", b"a2", b"b1", b"a3"):
        rig.publish(body, group=body[:1].decode())
    return rig


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


class TestOneByOne:
    """Fetching one message at a time."""

    def test_the_next_comes_when_the_last_is_settled(self, rig: Rig) -> None:
        """While a message of a group is out, none of it goes to another fetch."""
        first = rig.taken()
        other = rig.taken()
        assert (first.body, other.body, rig.take()) == (b"a1", b"b1", None)

        rig.finish(first)
        assert rig.taken().body == b"a2"

    def test_pops_go_in_order(self, rig: Rig) -> None:
        """A pop settles at once, so that the next of its group may go."""
        assert rig.drain() == [b"a1", b"a2", b"b1", b"a3"]
        assert len(rig.queue().groups) == 0

    def test_a_rejected_message_lets_its_group_go_on(self, rig: Rig) -> None:
        """A group does not stop at a message that is a dead letter."""
        rig.reject(rig.taken())

        assert rig.drain() == [b"a2", b"b1", b"a3"]

    def test_priority_goes_first_within_a_group(self, rig: Rig) -> None:
        """Of those held back the highest priority goes first."""
        first = rig.taken()
        rig.publish(b"a4", group="a", priority=9)
        rig.finish(first)

        assert rig.taken().body == b"a4"


class TestOneConsumer:
    """Subscriptions with several messages of a group in flight."""

    def test_all_of_a_group_goes_to_one(self, rig: Rig) -> None:
        """More of a group goes to who has some of it, in order, and nothing to others."""
        one, other = rig.subscribe(), rig.subscribe()
        got = bodies(rig.receive(one)), bodies(other.inbox)

        assert sorted(got) == [[b"a1", b"a2", b"a3"], [b"b1"]]

    def test_a_failure_stops_the_group_until_all_of_it_is_back(self, rig: Rig) -> None:
        """After a failure nothing more goes out before what is out is settled; then the failed one comes first."""
        consumer = rig.subscribe(credit=3)
        first, second, _ = rig.receive(consumer)
        rig.fail(first)
        assert bodies(rig.receive(consumer)) == []

        rig.finish(second)
        assert bodies(rig.receive(consumer)) == [b"a1", b"a3"]

    def test_a_retry_delay_keeps_the_group_waiting(self, rig: Rig) -> None:
        """A message that waits for its retry goes before the rest of its group."""
        rig.engine.alter(key(), rig.now, {"retry_delay": 10.0})
        consumer = rig.subscribe(credit=1)
        rig.fail(*rig.receive(consumer))
        assert bodies(rig.receive(consumer)) == [b"b1"]
        rig.finish(*consumer.client.held)
        assert bodies(rig.receive(consumer)) == []

        rig.wait(10.0)
        assert bodies(rig.receive(consumer)) == [b"a1"]

    def test_a_closed_consumer_holds_its_group_until_it_settles(self, rig: Rig) -> None:
        """What a consumer that closed still holds keeps the group from others."""
        one = rig.subscribe()
        held = [message for message in rig.receive(one) if message.group == "a"]
        one.close(rig.now)
        rig.publish(b"a4", group="a")
        other = rig.subscribe()
        assert bodies(rig.receive(other)) == []

        rig.finish(*held)
        assert bodies(rig.receive(other)) == [b"a4"]

    def test_a_group_goes_to_another_after_a_disconnect(self, rig: Rig) -> None:
        """When its consumer is gone, a group starts again elsewhere, in order."""
        client = rig.connect()
        rig.receive(rig.subscribe(client=client))
        rig.disconnect(client)

        assert rig.drain() == [b"a1", b"a2", b"b1", b"a3"]

    def test_a_selector_holds_for_what_is_held_back(self) -> None:
        """Who has some of a group gets no message of it that its selector refuses; the group waits for it."""
        rig = Rig()
        for name in ("x", "y", "x"):
            rig.publish(name.encode(), group="g", headers={"to": name})
        picky = rig.subscribe(selector=rig.selector(lambda headers: headers["to"] == "x"))
        first = rig.receive(picky)
        assert bodies(first) == [b"x"]

        rig.finish(*first)
        assert rig.drain() == [b"y", b"x"]

    def test_the_order_of_groups_and_others_is_kept(self) -> None:
        """Held back messages and those of no group go by priority and age."""
        rig = Rig()
        consumer = rig.subscribe(credit=2)
        for body, group in ((b"1", "g"), (b"2", "g"), (b"3", None), (b"4", "g")):
            rig.publish(body, group=group)
        got: list[bytes] = []
        while messages := rig.receive(consumer):
            got += bodies(messages)
            rig.finish(*messages)

        assert got == [b"1", b"2", b"3", b"4"]


class TestEnds:
    """Members of a group that end while they wait."""

    def test_the_first_expires(self) -> None:
        """An expired first message does not block its group, swept or not."""
        rig = Rig()
        rig.publish(b"1", group="g", ttl=5.0)
        rig.publish(b"2", group="g")
        rig.now += 5.0

        assert rig.taken().body == b"2"
        assert rig.queue().held_back == 0

    def test_a_member_held_back_expires(self) -> None:
        """One that is held back expires in the sweep, or when its turn comes before that."""
        for sweeps in (True, False):
            rig = Rig()
            consumer = rig.subscribe(credit=1)
            rig.publish(b"1", group="g")
            rig.publish(b"2", group="g", ttl=5.0)
            rig.publish(b"3", group="g")
            first = rig.receive(consumer)
            rig.now += 5.0
            if sweeps:
                rig.wait(0.0)
            consumer.credit = 2
            rig.finish(*first)
            assert bodies(rig.receive(consumer)) == [b"3"]
            assert (rig.queue().held_back, rig.queue().length) == (0, 1)

    def test_one_expires_while_its_group_is_with_a_consumer(self) -> None:
        """A consumer with room gets no expired message of its group."""
        rig = Rig()
        consumer = rig.subscribe(credit=1)
        rig.publish(b"1", group="g")
        rig.publish(b"2", group="g", ttl=5.0)
        rig.publish(b"3", group="g")
        rig.receive(consumer)
        rig.now += 5.0
        consumer.credit = 5
        rig.engine.effects.hungry[consumer] = None

        assert bodies(rig.receive(consumer)) == [b"3"]
        assert rig.drain("DLQ.q") == [b"2"]

    def test_a_purge_leaves_the_group_to_who_has_it(self, rig: Rig) -> None:
        """After a purge a new message waits until what is out is settled."""
        first = rig.taken()
        rig.engine.channels.purge_queue(rig.queue(), rig.now)
        rig.publish(b"new", group="a")
        assert rig.take() is None

        rig.finish(first)
        assert rig.drain() == [b"new"]
        assert len(rig.queue().groups) == 0

    @pytest.mark.parametrize("old", [0, 1])
    def test_a_key_replaces_within_a_group(self, old: int) -> None:
        """A waiting member is replaced by its key, whether it is the first or held back."""
        rig = Rig()
        for number in range(3):
            rig.publish(b"%d" % number, group="g", key=str(number))
        rig.publish(b"new", group="g", key=str(old))
        expected = [b"0", b"1", b"2"]
        expected[old] = b"new"

        assert rig.drain() == expected
        assert (len(rig.queue().groups), rig.queue().held_back) == (0, 0)

    def test_a_retrying_member_is_replaced(self) -> None:
        """A member that waits for its retry is replaced, and its group waits no longer for it."""
        rig = Rig()
        rig.queue(retry_delay=60.0)
        rig.publish(b"old", group="g", key="k")
        rig.publish(b"next", group="g")
        rig.fail(rig.taken())
        rig.publish(b"new", group="g", key="k")

        assert rig.drain() == [b"new", b"next"]

    def test_a_delayed_member_keeps_nobody_waiting(self) -> None:
        """A message of a group that was published for later is no part of it before its time."""
        rig = Rig()
        rig.publish(b"later", group="g", delay=5.0)
        rig.publish(b"now", group="g")
        message = rig.taken()
        rig.wait(5.0)
        assert (message.body, rig.take()) == (b"now", None)

        rig.finish(message)
        assert rig.drain() == [b"later"]


class TestRestart:
    """Groups that go on."""

    def test_order_and_owner_survive(self, rig: Rig) -> None:
        """A client that comes back still has its group; nobody else gets of it until it has settled."""
        client = rig.connect(returns=True, resume_timeout=60.0)
        consumer: Consumer = rig.subscribe(client=client, credit=2)
        assert bodies(rig.receive(consumer)) == [b"a1", b"a2"]
        after = rig.restart()
        assert after.drain() == [b"b1"]

        held = list(after.engine.clients.by_number[client.number].held)
        after.finish(*held)
        assert after.drain() == [b"a3"]

    def test_a_retry_that_waits_keeps_its_group_waiting(self, rig: Rig) -> None:
        """After a restart a group still waits for its failed message."""
        rig.engine.alter(key(), rig.now, {"retry_delay": 60.0})
        rig.fail(rig.taken())
        after = rig.restart()
        assert after.drain() == [b"b1"]

        after.wait(60.0)
        assert after.drain() == [b"a1", b"a2", b"a3"]


class TestManyGroups:
    """One consumer with many groups at once."""

    def test_the_foremost_of_all_goes_first(self) -> None:
        """Of many groups that it has, a consumer gets the most urgent and oldest message first."""
        rig = Rig()
        consumer = rig.subscribe(credit=10)
        for number in range(50):
            rig.publish(b"%d" % number, group=str(number % 10))
        rig.publish(b"urgent", group="3", priority=9)
        got: list[bytes] = []
        while messages := rig.receive(consumer):
            got += bodies(messages)
            rig.finish(*messages)

        expected = [b"%d" % number for number in range(50)]
        expected.insert(4, b"urgent")  # the next of group 3, once its first is out
        assert got == expected
        assert (consumer.groups, len(rig.queue().groups), rig.queue().held_back) == ({}, 0, 0)
        assert sum(map(len, consumer.offers.values())) <= 10

    def test_what_is_gone_is_not_offered(self) -> None:
        """What was replaced, expired or dropped while it was next is passed over, and leaves nothing behind."""
        rig = Rig()
        consumer = rig.subscribe(credit=1)
        rig.publish(b"1", group="g")
        rig.publish(b"2", group="g", key="k")
        rig.publish(b"3", group="g", ttl=5.0)
        rig.receive(consumer)
        rig.publish(b"4", group="g", key="k")
        consumer.credit = 2
        rig.engine.effects.hungry[consumer] = None
        assert bodies(rig.receive(consumer)) == [b"4"]

        rig.wait(5.0)
        rig.finish(*consumer.client.held)
        assert bodies(rig.receive(consumer)) == []
        assert len(rig.queue().groups) == 0
