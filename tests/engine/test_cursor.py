"""Leases and outcomes, as queues and subscribers share them."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.engine.transactions import Outcome, settle
from penstock.model.errors import NoObject, NotAssigned
from penstock.model.message import Message
from tests.engine.rig import Rig, key


@pytest.fixture
def rig() -> Rig:
    """Return an engine with one message in `q`."""
    rig = Rig()
    rig.publish()
    return rig


class TestLeases:
    """How long a message stays with a client."""

    def test_the_queue_gives_the_lease(self, rig: Rig) -> None:
        """Without a work_timeout the lease is the queue's heartbeat_timeout."""
        message = rig.taken()
        rig.wait(299.9)
        assert rig.take() is None

        rig.wait(0.1)
        again = rig.taken()
        assert (again.sequence, again.attempt, again.redelivered) == (message.sequence, 2, True)

    def test_the_consumer_may_ask_for_another(self, rig: Rig) -> None:
        """With a work_timeout the lease is that."""
        rig.taken(timeout=7.0)
        rig.wait(7.0)

        assert rig.taken().attempt == 2

    def test_the_connection_may_be_the_lease(self, rig: Rig) -> None:
        """Without a timeout a message stays as long as its client does."""
        client = rig.connect()
        rig.taken(client=client, timeout=None)
        rig.wait(1e6)
        assert rig.take() is None

        rig.disconnect(client)
        assert rig.taken().attempt == 2

    def test_keepalive_starts_one_lease_anew(self, rig: Rig) -> None:
        """A lease that is kept alive counts from then on."""
        message = rig.taken(timeout=10.0)
        rig.wait(9.0)
        message.cursor.keep_alive(message, rig.now)
        rig.wait(9.0)

        assert rig.take() is None

    def test_keepalive_starts_all_leases_anew(self, rig: Rig) -> None:
        """All that a client holds can be kept alive at once, and nothing of others."""
        other = rig.connect()
        rig.publish()
        rig.publish()
        rig.taken(timeout=10.0)
        rig.taken(timeout=20.0)
        rig.taken(timeout=10.0, client=other)
        rig.wait(9.0)

        assert rig.engine.keep_alive_all(rig.client, rig.now) == 2
        rig.wait(9.0)
        assert len(rig.client.held) == 2
        assert not other.held

    def test_leases_end_by_their_own_length(self, rig: Rig) -> None:
        """A short lease given later ends before a long one given earlier."""
        rig.publish()
        rig.taken(timeout=100.0)
        rig.taken(timeout=1.0)

        assert rig.engine.next_time() == rig.now + 1.0
        rig.wait(1.0)
        assert len(rig.client.held) == 1

    def test_a_lapsed_lease_cannot_be_kept_alive(self, rig: Rig) -> None:
        """After the end of a lease it is too late for a keepalive."""
        message = rig.taken(timeout=1.0)
        rig.wait(1.0)

        with pytest.raises(NotAssigned):
            message.cursor.keep_alive(message, rig.now)


class TestOutcomes:
    """Finish, fail, release and reject."""

    def test_finish_settles(self, rig: Rig) -> None:
        """A finished message is gone, and the store is told so."""
        message = rig.taken()

        assert message.cursor.finish(message, rig.now) is False
        assert rig.flush().gone == [message.sequence]
        assert (rig.queue().length, rig.queue().bytes) == (0, 0)

    def test_fail_counts(self, rig: Rig) -> None:
        """A failure raises the attempt of the next delivery."""
        rig.fail(rig.taken())

        assert rig.taken().attempt == 2

    def test_release_does_not_count(self, rig: Rig) -> None:
        """A release leaves the attempt, however often."""
        for _ in range(9):
            rig.release(rig.taken())

        assert rig.taken().attempt == 1

    def test_reject_ends_at_once(self, rig: Rig) -> None:
        """A rejected message is a dead letter, whatever its attempt."""
        rig.reject(rig.taken(), reason="bad")

        assert rig.taken("DLQ.q").headers["death-reason"] == "bad"

    def test_the_nth_failure_buries(self, rig: Rig) -> None:
        """With retry_limit N the N-th failure sends a message to the dead letters, however it fails."""
        client = rig.connect()
        rig.fail(rig.taken())
        rig.taken(timeout=1.0)
        rig.wait(1.0)
        rig.taken(client=client)
        rig.disconnect(client)
        rig.fail(rig.taken())
        assert rig.take("DLQ.q") is None

        rig.fail(rig.taken())
        assert rig.taken("DLQ.q").body == b"m"
        assert rig.queue().length == 0

    def test_pop_settles_on_assignment(self, rig: Rig) -> None:
        """A popped message cannot be settled again, and nobody holds it."""
        message = rig.taken(settles=True)

        assert message.finished
        assert (rig.client.held, rig.queue().length) == ({}, 0)
        with pytest.raises(NoObject):
            rig.finish(message)

    def test_outcomes_by_name(self, rig: Rig) -> None:
        """`settle` does what the outcome says."""
        for outcome in (Outcome.RELEASE, Outcome.FAIL, Outcome.REJECT):
            assert settle(rig.taken(), outcome, "r", rig.now) is False

        assert rig.engine.channels.queues[key()].totals.as_dict() == {
            "assigned": 3,
            "dead_lettered": 1,
            "dropped": 1,
            "finished": 0,
            "published": 1,
            "released": 1,
            "retried": 1,
        }


class TestLate:
    """Settlements that come after the lease."""

    @pytest.mark.parametrize("said", [{}, {"headers": {"a": "b"}}, {"group": "g"}, {"key": "k"}, {"ttl": 1e6}])
    def test_a_late_finish_succeeds_before_anyone_else_has_it(self, said: dict[str, Any]) -> None:
        """After expiry, while the message waits, a finish succeeds and is marked late."""
        rig = Rig()
        rig.publish(**said)
        message = rig.taken()
        rig.wait(300.0)

        assert message.cursor.finish(message, rig.now) is True
        queue = rig.queue()
        assert (queue.length, queue.bytes, queue.keys, len(queue.groups), queue.lapsed) == (0, 0, {}, 0, {})
        assert rig.take() is None
        assert message.finished

    def test_late_while_the_retry_is_delayed(self) -> None:
        """A late finish also finds a message that waits for its retry."""
        rig = Rig()
        rig.queue(retry_delay=60.0)
        rig.publish(group="g")
        rig.publish(b"next", group="g")
        message = rig.taken()
        rig.wait(300.0)

        assert message.cursor.finish(message, rig.now) is True
        assert rig.drain() == [b"next"]

    def test_who_lost_it_to_another_is_refused(self, rig: Rig) -> None:
        """Once another client has the message, the first one's settlement is refused and changes nothing."""
        message = rig.taken()
        rig.wait(300.0)
        other = rig.taken(client=rig.connect())

        with pytest.raises(NotAssigned):
            rig.finish(message)
        rig.finish(other)

    @pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.RELEASE, Outcome.REJECT])
    def test_only_finish_may_be_late(self, rig: Rig, outcome: Outcome) -> None:
        """Other outcomes after expiry are refused and change nothing."""
        message = rig.taken()
        rig.wait(300.0)
        before = rig.engine.effects.position

        with pytest.raises(NotAssigned):
            settle(message, outcome, "", rig.now)
        assert rig.engine.effects.position == before

    def test_what_is_settled_is_unknown(self, rig: Rig) -> None:
        """A message that is settled, by whomever, is no object any more."""
        message = rig.taken()
        rig.wait(300.0)
        rig.finish(rig.taken())

        for outcome in Outcome:
            with pytest.raises(NoObject):
                settle(message, outcome, "", rig.now)

    def test_a_message_that_was_given_back_cannot_be_finished(self, rig: Rig) -> None:
        """Who fails or releases a message has no say in it any more."""
        message = rig.taken()
        rig.fail(message)

        with pytest.raises(NotAssigned):
            rig.finish(message)

    @pytest.mark.parametrize(
        "end", [lambda rig: rig.wait(2000.0), lambda rig: rig.engine.channels.purge_queue(rig.queue(), rig.now)]
    )
    def test_too_late(self, end: Callable[[Rig], None]) -> None:
        """After the waiting message expired or was purged, a late finish finds nothing."""
        rig = Rig()
        rig.publish(ttl=1000.0)
        message = rig.taken()
        rig.wait(300.0)
        end(rig)

        with pytest.raises(NoObject):
            rig.finish(message)
        assert rig.queue().lapsed == {}


class TestFinding:
    """A message by its sequence, as clients name it."""

    def find(self, rig: Rig, message: Message) -> Message:
        """Return what the client finds by the sequence."""
        return rig.engine.find_assigned(key(), message.sequence, rig.client)

    def test_by_who_has_it(self, rig: Rig) -> None:
        """The client that has a message finds it, also when it has lapsed."""
        message = rig.taken()
        assert self.find(rig, message) is message

        rig.wait(300.0)
        assert self.find(rig, message) is message

    def test_by_who_has_it_not(self, rig: Rig) -> None:
        """Others are told that it is not theirs, assigned, lapsed or waiting."""
        other = rig.connect()
        message = rig.taken(client=other)
        with pytest.raises(NotAssigned):
            self.find(rig, message)
        rig.wait(300.0)
        with pytest.raises(NotAssigned):
            self.find(rig, message)
        rig.release(rig.taken())
        with pytest.raises(NotAssigned):
            self.find(rig, message)

    def test_what_is_not_there(self, rig: Rig) -> None:
        """A settled message, a number never given and a missing queue are no objects."""
        message = rig.taken()
        rig.finish(message)
        with pytest.raises(NoObject):
            self.find(rig, message)
        with pytest.raises(NoObject):
            rig.engine.find_assigned(key("none"), 1, rig.client)

    def test_waiting_messages_are_not_assigned(self, rig: Rig) -> None:
        """A message that waits, fresh, delayed or deep in the store, is not assigned."""
        delayed = rig.publish(delay=5.0)
        for sequence in (delayed, delayed - 1):
            with pytest.raises(NotAssigned):
                rig.engine.find_assigned(key(), sequence, rig.client)
