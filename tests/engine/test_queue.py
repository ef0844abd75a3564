"""Queues: identity, order, delays, expiry, keys, dedup, room, and the ends of messages."""

import pytest

from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists, QueueFull, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import State
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine with an empty queue `q`."""
    rig = Rig()
    rig.queue()
    return rig


class TestIdentity:
    """Which queue is which, and how it comes to be."""

    def test_tags_tell_queues_of_one_name_apart(self, rig: Rig) -> None:
        """The same name with other tags is another queue; order and repetition of tags do not matter."""
        rig.publish(b"eu", tags=["eu"])
        rig.publish(b"both", tags=["fast", "eu", "fast"])

        assert rig.drain(tags=["eu"]) == [b"eu"]
        assert rig.drain(tags=["eu", "fast"]) == [b"both"]
        assert rig.drain(tags=[]) == []

    def test_create_of_what_exists_changes_nothing(self, rig: Rig) -> None:
        """To create a queue that exists is a success that leaves its settings as they are."""
        queue = rig.queue("q", retry_limit=2)

        assert queue.settings.retry_limit == 5
        assert rig.queue() is queue

    def test_exclusive_create_refuses_what_exists(self, rig: Rig) -> None:
        """To create exclusively what exists is an error."""
        with pytest.raises(ObjectAlreadyExists):
            rig.engine.channels.create_queue(key(), 0.0, {}, exclusive=True)

    def test_publishing_creates(self) -> None:
        """Publishing to a missing queue makes it, unless the broker was told not to."""
        rig, strict = Rig(), Rig(auto_create=False)
        rig.publish(name="new")

        assert key("new") in rig.engine.channels.queues
        with pytest.raises(NoObject):
            strict.publish(name="new")

    def test_there_may_be_too_many_channels(self) -> None:
        """A channel over the limit is refused, and nothing is recorded of it."""
        rig = Rig(limits=Limits(channels_max=1))
        rig.publish()
        before = rig.engine.effects.position

        with pytest.raises(TooLarge) as caught:
            rig.publish(name="other")
        assert caught.value.data == {"size": 2, "limit": 1}
        assert rig.engine.effects.position == before

    def test_a_queue_is_not_its_own_grave(self, rig: Rig) -> None:
        """A queue cannot be its own dead letter queue, made or altered so."""
        with pytest.raises(BadRequest):
            rig.queue("other", dead_letter="other")
        with pytest.raises(BadRequest):
            rig.engine.alter(key(), 0.0, {"dead_letter": "q"})


class TestIds:
    """Ids and sequences."""

    def test_ids_are_small_and_used_again(self, rig: Rig) -> None:
        """An id is unique among unsettled messages of a queue, and free again after."""
        for _ in range(3):
            rig.publish()
        first, second = rig.taken(), rig.taken()
        rig.finish(first)

        assert {first.id, second.id} == {1, 2}
        assert rig.taken().id == first.id

    def test_a_retried_message_keeps_its_id(self, rig: Rig) -> None:
        """A message that comes back has the id that it had."""
        rig.publish()
        rig.publish()
        message = rig.taken()
        rig.taken()
        rig.fail(message)

        assert rig.taken().id == message.id

    @pytest.mark.parametrize("end", ["finish", "reject", "pop", "purge", "late"])
    def test_every_end_frees_the_id(self, rig: Rig, end: str) -> None:
        """However a message ends, its id can be given again."""
        rig.publish()
        if end == "pop":
            rig.taken(settles=True)
        else:
            message = rig.taken()
            if end in {"purge", "late"}:
                rig.wait(301.0)
            if end == "purge":
                rig.engine.channels.purge_queue(rig.queue(), rig.now)
            else:
                (rig.reject if end == "reject" else rig.finish)(message)
        rig.publish()

        assert rig.taken().id == 1

    def test_sequences_are_never_used_again(self, rig: Rig) -> None:
        """After a restart sequences go on above all that were reserved."""
        last = rig.publish()
        after = rig.restart()

        assert after.publish() >= last + 2**20


class TestOrder:
    """Who goes first."""

    def test_priority_then_sequence(self, rig: Rig) -> None:
        """Higher priorities go first, and within one the older."""
        for body, priority in ((b"a", 4), (b"b", 9), (b"c", 0), (b"d", 4), (b"e", 2**32 - 1)):
            rig.publish(body, priority=priority)

        assert rig.drain() == [b"e", b"b", b"a", b"d", b"c"]

    def test_a_failed_message_takes_its_place_again(self, rig: Rig) -> None:
        """What comes back goes where its priority and sequence say, not to the end."""
        for body in (b"a", b"b", b"c"):
            rig.publish(body)
        first, second = rig.taken(), rig.taken()
        rig.fail(second)
        rig.release(first)

        assert rig.drain() == [b"a", b"b", b"c"]


class TestDelay:
    """Messages before their time."""

    def test_a_delayed_message_is_neither_leased_nor_visible(self, rig: Rig) -> None:
        """Before its time a message is not handed out; at its time it is, and not before a sweep that late."""
        rig.publish(delay=10.0)
        rig.wait(9.999)
        queue = rig.queue()

        assert (rig.take(), queue.waiting, queue.length) == (None, 0, 1)
        rig.wait(0.001)
        assert rig.taken().attempt == 1

    def test_it_takes_the_place_of_its_sequence(self, rig: Rig) -> None:
        """Once due it goes before younger messages of its priority."""
        rig.publish(b"late", delay=10.0)
        rig.publish(b"soon")
        rig.wait(10.0)

        assert rig.drain() == [b"late", b"soon"]

    def test_retries_back_off(self, rig: Rig) -> None:
        """The n-th retry waits retry_delay times back-off to the n-1, at most retry_delay_max."""
        rig.queue("r", retry_delay=10.0, retry_backoff=3.0, retry_delay_max=50.0)
        rig.publish(name="r")
        waits = []
        for _ in range(4):
            rig.fail(rig.taken("r"))
            waits.append(rig.engine.agenda.delays.next_time() - rig.now)  # type: ignore[operator]
            rig.wait(waits[-1])

        assert waits == [10.0, 30.0, 50.0, 50.0]


class TestExpiry:
    """Messages with a time to live."""

    def test_a_waiting_message_expires(self, rig: Rig) -> None:
        """At the end of its ttl a waiting message is dead-lettered."""
        rig.publish(ttl=5.0)
        rig.wait(5.0)

        assert rig.queue().length == 0
        assert rig.taken("DLQ.q").headers["death-reason"] == "expired"

    def test_it_is_not_handed_out_before_the_sweep_comes(self, rig: Rig) -> None:
        """A message past its ttl is not handed out, though nobody has swept yet."""
        rig.publish(b"old", ttl=5.0)
        rig.publish(b"new")
        rig.now += 5.0

        assert rig.drain() == [b"new"]
        assert rig.drain("DLQ.q") == [b"old"]

    def test_a_delayed_message_expires(self, rig: Rig) -> None:
        """A delayed message can be too old before its time."""
        rig.publish(ttl=5.0, delay=10.0)
        rig.wait(5.0)

        assert rig.queue().length == 0
        assert not rig.queue().delayed

    def test_an_assigned_message_does_not_expire_until_it_returns(self, rig: Rig) -> None:
        """Assigned, a message may outlive its ttl and be finished; returned, it expires."""
        rig.publish(b"a", ttl=5.0)
        rig.publish(b"b", ttl=5.0)
        first, second = rig.taken(), rig.taken()
        rig.wait(6.0)
        rig.finish(first)
        rig.fail(second)
        rig.wait(0.0)

        assert rig.drain("DLQ.q") == [b"b"]

    def test_the_queue_has_a_ttl_of_its_own(self, rig: Rig) -> None:
        """The ttl of the queue holds for messages without one, dead letters included."""
        rig.queue("r", ttl=5.0)
        rig.queue("DLQ.x", ttl=5.0)
        rig.publish(name="r")
        rig.publish(name="r", ttl=50.0)
        rig.publish(name="x")
        rig.reject(rig.taken("x"))
        rig.wait(5.0)

        assert rig.queue("r").length == 1
        assert rig.queue("DLQ.x").length == 0

    def test_nothing_of_a_purged_message_is_left_to_expire(self, rig: Rig) -> None:
        """A purge, a deletion and every settlement call the expiry off."""
        for _ in range(4):
            rig.publish(ttl=1e9)
        rig.finish(rig.taken())
        rig.taken(settles=True)
        rig.reject(rig.taken())
        rig.engine.channels.purge_queue(rig.queue(), rig.now)

        assert len(rig.engine.agenda.expiries) == 0


class TestKeys:
    """Messages that replace one another."""

    def test_the_new_one_takes_the_old_ones_place(self, rig: Rig) -> None:
        """A message of the key that waits is replaced: a new sequence, the old place."""
        old = rig.publish(b"old", key="k")
        rig.publish(b"other")
        new = rig.publish(b"new", key="k")
        message = rig.taken()

        assert (message.body, message.sequence, message.attempt) == (b"new", new, 1)
        assert new > old
        assert rig.drain() == [b"other"]

    def test_an_assigned_message_is_not_replaced(self, rig: Rig) -> None:
        """What somebody works on is left alone."""
        rig.publish(b"old", key="k")
        message = rig.taken()
        rig.publish(b"new", key="k")
        rig.finish(message)

        assert rig.drain() == [b"new"]

    def test_a_delayed_message_is_replaced(self, rig: Rig) -> None:
        """Delayed counts as waiting; the delay starts anew."""
        rig.publish(b"old", key="k", delay=10.0)
        rig.publish(b"new", key="k", delay=20.0)
        rig.wait(10.0)

        assert rig.drain() == []
        rig.wait(10.0)
        assert rig.drain() == [b"new"]

    def test_a_retrying_message_is_replaced(self, rig: Rig) -> None:
        """Retrying counts as waiting; the attempts start anew."""
        rig.queue("r", retry_delay=10.0)
        rig.publish(b"old", name="r", key="k")
        rig.fail(rig.taken("r"))
        rig.publish(b"new", name="r", key="k")

        assert rig.taken("r").attempt == 1
        assert rig.queue("r").length == 1

    def test_the_old_ones_publisher_is_told(self, rig: Rig) -> None:
        """Who published the replaced message gets `drop`, and it is no dead letter."""
        rig.publish(key="k", notify=["drop", "finish"], label=7)
        rig.publish(key="k")

        assert rig.stages(7) == ["drop"]
        assert key("DLQ.q") not in rig.engine.channels.queues

    def test_keys_are_forgotten_with_their_messages(self, rig: Rig) -> None:
        """No key stays when its message is handed out, ends or is purged."""
        rig.publish(key="a")
        rig.publish(key="b", ttl=1.0)
        rig.publish(key="c")
        rig.taken()
        rig.wait(1.0)
        rig.engine.channels.purge_queue(rig.queue(), rig.now)

        assert rig.queue().keys == {}

    def test_the_place_is_kept_through_failures(self, rig: Rig) -> None:
        """A message that took a place keeps it when it comes back."""
        rig.publish(b"old", key="k")
        rig.publish(b"other")
        rig.publish(b"new", key="k")
        rig.fail(rig.taken())

        assert rig.drain() == [b"new", b"other"]


class TestRoom:
    """`max_length`, `max_bytes` and what gives way."""

    def test_a_full_queue_rejects(self, rig: Rig) -> None:
        """Over max_length a message is refused, and nothing is changed."""
        rig.queue("r", max_length=2)
        rig.publish(name="r")
        rig.publish(name="r")
        before = rig.engine.effects.position

        with pytest.raises(QueueFull) as caught:
            rig.publish(name="r")
        assert caught.value.data == {"length": 2, "bytes": 2}
        assert rig.engine.effects.position == before

    def test_assigned_messages_take_room(self, rig: Rig) -> None:
        """What is assigned counts until it is settled."""
        rig.queue("r", max_length=1)
        rig.publish(name="r")
        message = rig.taken("r")
        with pytest.raises(QueueFull):
            rig.publish(name="r")
        rig.finish(message)

        assert rig.publish(name="r")

    def test_bytes_are_those_of_bodies_and_headers(self, rig: Rig) -> None:
        """max_bytes counts bodies and headers."""
        rig.queue("r", max_bytes=10)
        rig.publish(b"12345", name="r", headers={"ab": "c"})
        with pytest.raises(QueueFull):
            rig.publish(b"123", name="r")

        assert rig.publish(b"12", name="r")
        assert rig.queue("r").bytes == 10

    @pytest.mark.parametrize(("policy", "buried"), [("drop-oldest", []), ("dead-letter-oldest", [b"a"])])
    def test_the_oldest_gives_way(self, rig: Rig, policy: str, buried: list[bytes]) -> None:
        """The oldest waiting message goes, whatever its priority, and is a dead letter if so set."""
        rig.queue("r", max_length=3, overflow=policy)
        for body, priority in ((b"a", 9), (b"b", 4), (b"c", 4), (b"d", 4)):
            rig.publish(body, name="r", priority=priority)

        assert rig.drain("r") == [b"b", b"c", b"d"]
        assert rig.drain("DLQ.r") == buried

    def test_oldest_is_by_sequence_wherever_it_waits(self, rig: Rig) -> None:
        """Returned, delayed, grouped and withdrawn messages are compared by their sequences."""
        rig.queue("r", max_length=4, overflow="drop-oldest")
        rig.publish(b"0", name="r", priority=9)
        rig.publish(b"1", name="r", delay=5.0)
        rig.publish(b"2", name="r", group="g")
        rig.publish(b"3", name="r")
        rig.release(rig.taken("r"))
        dropped = []
        for body in (b"4", b"5", b"6", b"7"):
            before = set(rig.queue("r").waiting_sequences())
            rig.publish(body, name="r")
            dropped += [sequence - min(before) for sequence in before - set(rig.queue("r").waiting_sequences())]

        assert dropped == [0, 0, 0, 0]
        assert rig.drain("r") == [b"4", b"5", b"6", b"7"]

    def test_a_message_that_can_never_fit_drops_nothing(self, rig: Rig) -> None:
        """When all that waits could go and it would not fit, it is refused and nothing is dropped."""
        rig.queue("r", max_bytes=10, overflow="drop-oldest")
        rig.publish(b"123456", name="r")
        rig.taken("r")
        rig.publish(b"1234", name="r")

        with pytest.raises(QueueFull):
            rig.publish(b"12345", name="r")
        assert rig.drain("r") == [b"1234"]

    def test_a_replacement_needs_no_more_room_than_it_frees(self, rig: Rig) -> None:
        """A full queue takes a message whose key's old one goes."""
        rig.queue("r", max_length=1, max_bytes=3)
        rig.publish(b"old", name="r", key="k")
        rig.publish(b"new", name="r", key="k")

        assert rig.drain("r") == [b"new"]

    def test_a_replacement_that_is_too_large_drops_the_oldest_others(self, rig: Rig) -> None:
        """A larger replacement takes its old one's place, and the oldest others give way."""
        rig.queue("r", max_bytes=10, overflow="dead-letter-oldest")
        rig.publish(b"old", name="r", key="k")
        rig.publish(b"1234", name="r")
        rig.publish(b"567", name="r")
        rig.publish(b"newer", name="r", key="k")

        assert rig.drain("r") == [b"newer", b"567"]
        assert rig.drain("DLQ.r") == [b"1234"]

    def test_dead_letters_always_find_room(self, rig: Rig) -> None:
        """A full dead letter queue takes a dead letter all the same: it must not be lost."""
        rig.queue("DLQ.q", max_length=1)
        for _ in range(2):
            rig.publish()
            rig.reject(rig.taken())

        assert rig.queue("DLQ.q").length == 2


class TestAllAtOnce:
    """Pause, purge and delete."""

    def test_a_paused_queue_hands_nothing_out(self, rig: Rig) -> None:
        """Paused, a queue takes messages and gives none; it is served when it goes on."""
        consumer = rig.subscribe()
        rig.engine.alter(key(), rig.now, {"paused": True})
        rig.publish()

        assert rig.receive(consumer) == []
        assert rig.take() is None
        rig.engine.alter(key(), rig.now, {"paused": False})
        assert len(rig.receive(consumer)) == 1

    def test_a_pause_survives_a_restart(self, rig: Rig) -> None:
        """A queue that was paused still is."""
        rig.engine.alter(key(), rig.now, {"paused": True})

        assert rig.restart().queue().settings.paused

    def test_purge_drops_what_waits_and_leaves_what_is_assigned(self, rig: Rig) -> None:
        """Waiting, returned, delayed and grouped messages go; assigned ones stay; publishers get `drop`."""
        rig.publish(b"assigned")
        assigned = rig.taken()
        rig.publish(notify=["drop"], label=1)
        rig.publish(notify=["drop"], label=2, delay=5.0)
        rig.publish(notify=["drop"], label=3, group="g")
        rig.publish(notify=["drop"], label=4, key="k")

        assert rig.engine.channels.purge_queue(rig.queue(), rig.now) == 4
        assert [rig.stages(label) for label in (1, 2, 3, 4)] == [["drop"]] * 4
        assert (rig.queue().length, rig.queue().bytes) == (1, len(b"assigned"))
        rig.finish(assigned)
        assert rig.queue().bytes == 0

    def test_delete_ends_all_of_a_queue(self, rig: Rig) -> None:
        """A deleted queue takes waiting and assigned messages along, and tells their publishers."""
        rig.publish(notify=["drop"], label=1, group="g")
        rig.publish(notify=["drop"], label=2)
        message = rig.taken()

        assert rig.engine.delete(key(), rig.now) == 2
        assert (rig.stages(1), rig.stages(2)) == (["drop"], ["drop"])
        assert (message.state, rig.client.held) == (State.SETTLED, {})
        assert sorted(rig.gone) == [sequence for sequence, record in rig.log.items() if record[0] == 1]
        with pytest.raises(NoObject):
            rig.finish(message)
        with pytest.raises(NoObject):
            rig.engine.delete(key(), rig.now)

    def test_nothing_of_a_deleted_queue_is_left(self, rig: Rig) -> None:
        """Delays, expiries, leases, groups and work to hand out go with the queue."""
        consumer = rig.subscribe(credit=1)
        rig.publish(group="g")
        rig.publish(delay=5.0, ttl=50.0)
        rig.publish(ttl=50.0)
        rig.receive(consumer)
        rig.engine.delete(key(), rig.now)
        agenda, effects = rig.engine.agenda, rig.engine.effects

        assert (len(agenda.delays), len(agenda.expiries), agenda.leases.expired(1e9, 9)) == (0, 0, [])
        assert (consumer.unsettled, consumer.groups, consumer.cursors, effects.dirty) == (0, {}, {}, {})

    def test_a_consumer_takes_from_the_queue_that_comes_after(self, rig: Rig) -> None:
        """Who was subscribed gets the messages of a queue made anew."""
        consumer = rig.subscribe()
        rig.engine.delete(key(), rig.now)
        rig.publish(b"again")

        assert rig.bodies(consumer) == [b"again"]
