"""Clients: what becomes of what they hold, and of what they are to be told, when they go and come back."""

import pytest

from penstock.engine.clients import Client
from penstock.engine.effects import Notice
from penstock.model.limits import Limits
from penstock.model.message import State
from tests.engine.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Return an engine with one message in `q`."""
    rig = Rig()
    rig.publish()
    return rig


class TestGoing:
    """Disconnecting and leaving."""

    def test_a_disconnect_fails_what_was_held_at_once(self, rig: Rig) -> None:
        """What a lost connection held waits again, counted as failed."""
        client = rig.connect()
        message = rig.taken(client=client)
        rig.disconnect(client)

        assert message.state is State.LAPSED
        assert rig.taken().attempt == 2

    def test_leaving_in_good_order_does_not_count(self, rig: Rig) -> None:
        """A client that says goodbye gives back what it held, not counted."""
        client = rig.connect()
        rig.taken(client=client)
        rig.engine.clients.leave(client, rig.now)
        again = rig.taken()

        assert (again.attempt, again.redelivered) == (1, True)

    def test_its_consumers_end(self, rig: Rig) -> None:
        """Nothing goes to the consumers of a client that went."""
        client = rig.connect(resume_timeout=60.0)
        consumer = rig.subscribe(client=client, credit=1)
        rig.receive(consumer)
        rig.disconnect(client)
        rig.publish()

        assert not consumer.is_open
        assert rig.taken().body == b"m"

    def test_it_is_forgotten(self, rig: Rig) -> None:
        """Nothing is left of a client that is gone for good, where it published neither."""
        client = rig.connect()
        rig.publish(client=client)
        rig.disconnect(client)
        rig.wait(1.0)

        assert client.number not in rig.engine.clients.by_number
        assert rig.engine.clients.find(client.id, "") is None
        assert client.number not in rig.queue().publishers


class TestComingBack:
    """Clients that asked to be kept."""

    @pytest.fixture
    def client(self, rig: Rig) -> Client:
        """Return a client that is kept for a minute and holds the message."""
        client = rig.connect(resume_timeout=60.0, user="ann")
        rig.taken(client=client)
        return client

    def test_it_keeps_what_it_holds(self, rig: Rig, client: Client) -> None:
        """Within resume_timeout a client that comes back has its leases still, and no timer runs on."""
        rig.disconnect(client)
        rig.wait(59.0)
        rig.engine.clients.resume(client, rig.now)
        rig.wait(59.0)
        (message,) = client.held
        rig.finish(message)

        assert rig.queue().length == 0

    def test_after_the_time_it_fails_what_it_held(self, rig: Rig, client: Client) -> None:
        """Who does not come back in time loses what it held, counted as failed."""
        rig.disconnect(client)
        assert rig.engine.next_time() == rig.now + 60.0
        rig.wait(60.0)

        assert rig.taken().attempt == 2

    def test_leases_run_meanwhile(self, rig: Rig) -> None:
        """A lease may end while its client is away."""
        client = rig.connect(resume_timeout=60.0)
        rig.taken(client=client, timeout=5.0)
        rig.disconnect(client)
        rig.wait(5.0)

        assert rig.taken().attempt == 2

    def test_an_id_belongs_to_its_user(self, rig: Rig, client: Client) -> None:
        """A client is found by its id and user together."""
        assert rig.engine.clients.find(client.id, "ann") is client
        assert rig.engine.clients.find(client.id, "bob") is None
        assert rig.engine.clients.find(b"?" * 16, "ann") is None

    def test_the_later_of_two_wins(self, rig: Rig, client: Client) -> None:
        """Resumed while it is connected, the earlier connection is told, and its consumers end."""
        told: list[str] = []
        consumer = rig.subscribe(client=client)
        client.on_close = lambda: told.append("closed")
        rig.engine.clients.resume(client, rig.now)
        rig.engine.clients.resume(client, rig.now)

        assert (told, consumer.is_open, client.connected) == (["closed"], False, True)
        assert len(client.held) == 1

    def test_consumers_end_though_nobody_is_told(self, rig: Rig, client: Client) -> None:
        """Also a connection that wants to be told nothing loses its consumers to the later one."""
        consumer = rig.subscribe(client=client)
        rig.engine.clients.resume(client, rig.now)

        assert not consumer.is_open

    def test_the_time_has_a_limit(self) -> None:
        """Nobody is kept for longer than resume_timeout_max."""
        rig = Rig(limits=Limits(resume_timeout_max=5.0))

        assert rig.connect(resume_timeout=1e9).resume_timeout == 5.0

    def test_sweeping_is_cut_into_slices(self, rig: Rig) -> None:
        """A sweep lets go of no more clients than its limit."""
        for _ in range(5):
            rig.disconnect(rig.connect(resume_timeout=1.0))
        rig.now += 1.0

        assert rig.engine.sweep(rig.now, 3)
        assert not rig.engine.sweep(rig.now, 3)
        assert len(rig.engine.clients.by_number) == 1


class TestNotices:
    """What publishers are told."""

    def test_as_it_happens(self, rig: Rig) -> None:
        """A connected publisher is told at once."""
        told: list[Notice] = []
        client = rig.connect()
        client.on_notice = told.append
        rig.publish(b"x", client=client, notify=["finish"], label=5)
        rig.drain()
        rig.flush()

        assert [(notice.label, notice.stage.name) for notice in told] == [(5, "FINISH")]

    def test_what_was_missed_comes_with_the_resume(self, rig: Rig) -> None:
        """Notices that came while a client was away are kept, up to a limit, and given once."""
        rig.engine.clients._limits = Limits(missed_notices_max=2)
        client = rig.connect(resume_timeout=60.0)
        for label in range(3):
            rig.publish(client=client, notify=["finish"], label=label)
        rig.disconnect(client)
        rig.drain()
        rig.flush()

        assert [notice.label for notice in rig.engine.clients.resume(client, rig.now)] == [0, 1]
        assert rig.engine.clients.resume(client, rig.now) == []

    def test_who_is_gone_is_told_nothing(self, rig: Rig) -> None:
        """Notices to a client that is gone for good are dropped."""
        client = rig.connect()
        rig.publish(client=client, notify=["finish"])
        rig.disconnect(client)
        rig.drain()
        rig.flush()

        assert rig.queue().watched == {}


class TestRestart:
    """Clients and the broker's restarts."""

    def test_who_returns_finds_its_messages_its_own(self, rig: Rig) -> None:
        """The leases of a client that can come back start from zero, and it finishes as if nothing had been."""
        client = rig.connect(returns=True, resume_timeout=600.0)
        rig.taken(client=client, timeout=50.0)
        rig.wait(40.0)
        after = rig.restart()
        known = after.engine.clients.find(client.id, "")
        assert known is not None

        after.engine.clients.resume(known, after.now)
        after.wait(49.0)
        assert after.take() is None
        after.finish(*known.held)
        assert after.queue().length == 0

    def test_who_returns_too_late_has_failed(self, rig: Rig) -> None:
        """A client that does not come back after a restart loses its messages as usual."""
        client = rig.connect(returns=True)
        rig.taken(client=client, timeout=50.0)
        after = rig.restart()
        after.wait(50.0)

        assert after.taken().attempt == 2

    def test_a_lease_of_the_queue_is_waited_for_too(self, rig: Rig) -> None:
        """Who holds a message as its queue leases it has as long to come back, though no record tells how long."""
        client = rig.connect(returns=True)
        rig.taken(client=client)
        after = rig.restart()
        after.wait(after.queue().heartbeat_timeout - 1)
        assert after.take() is None
        after.wait(1.0)

        assert after.taken().attempt == 2

    def test_what_cannot_come_back_waits_at_once(self, rig: Rig) -> None:
        """What a client held that cannot return waits again, marked redelivered, and is not counted."""
        rig.taken()
        after = rig.restart()
        again = after.taken()

        assert (again.attempt, again.redelivered) == (1, True)

    def test_an_unwritten_assignment_is_forgotten(self, rig: Rig) -> None:
        """An assignment that was not written when the broker was killed leaves no mark."""
        rig.flush()
        known = dict(rig.log)
        rig.taken()
        rig.flush()
        rig.log.clear()
        rig.log.update(known)
        again = rig.restart().taken()

        assert (again.attempt, again.redelivered) == (1, False)

    def test_nobody_is_kept_for_nothing(self, rig: Rig) -> None:
        """Clients that hold nothing and asked for nothing are forgotten at the start, and so are those that went."""
        rig.connect(returns=True)
        rig.disconnect(rig.connect())
        kept = rig.connect(returns=True, resume_timeout=60.0)
        after = rig.restart()

        assert set(after.engine.clients.by_number) == {kept.number, after.client.number}

    def test_numbers_are_not_used_again(self, rig: Rig) -> None:
        """A new client after a restart has a number that nobody had."""
        last = rig.connect().number

        assert rig.restart().client.number == last + 1
