"""What becomes due when: times that may be called off, and leases."""

from penstock.engine.schedule import Leases, Schedule
from penstock.model.message import Message
from tests.engine.rig import Rig


def message(number: int = 0) -> Message:
    return Message((1, 1, 0.0, number, 1, 4, None, b""), Rig().queue())


class TestSchedule:
    """Keys with times."""

    def test_in_the_order_of_time_then_of_addition(self) -> None:
        """What is due first comes first; of the same time, what was added first."""
        schedule: Schedule[str] = Schedule()
        for time, name in ((3.0, "c"), (1.0, "a"), (1.0, "b"), (2.0, "x")):
            schedule.add(time, name)

        assert [schedule.pop_due(2.0) for _ in range(4)] == ["a", "b", "x", None]
        assert (schedule.next_time(), len(schedule), "c" in schedule) == (3.0, 1, True)

    def test_a_later_time_takes_the_place_of_an_earlier(self) -> None:
        """A key is due once, at the time given last."""
        schedule: Schedule[str] = Schedule()
        schedule.add(1.0, "a")
        schedule.add(5.0, "a")

        assert schedule.pop_due(4.0) is None
        assert (schedule.pop_due(5.0), schedule.pop_due(9.0)) == ("a", None)

    def test_what_is_called_off_leaves_nothing(self) -> None:
        """Keys that are called off are never due, and do not pile up."""
        schedule: Schedule[int] = Schedule()
        for number in range(1000):
            schedule.add(1e9 - number, number)
            schedule.discard(number)
            schedule.discard(number)

        assert (schedule.next_time(), len(schedule)) == (None, 0)
        assert len(schedule._heap) < 100

    def test_items_are_all(self) -> None:
        """All keys can be listed with their times."""
        schedule: Schedule[str] = Schedule()
        schedule.add(2.0, "b")
        schedule.add(1.0, "a")

        assert dict(schedule.items()) == {"a": 1.0, "b": 2.0}


class TestLeases:
    """Leases of different lengths."""

    def test_each_ends_by_its_own_length(self) -> None:
        """Leases end at their deadline, given anew or not."""
        leases = Leases()
        short, long, anew = message(1), message(2), message(3)
        leases.give(long, 100.0, 0.0)
        leases.give(short, 10.0, 0.0)
        leases.give(anew, 10.0, 0.0)
        leases.give(anew, 10.0, 5.0)

        assert leases.expired(9.9, 9) == []
        assert leases.expired(10.0, 9) == [short]
        assert set(leases.expired(100.0, 9)) == {short, anew, long}

    def test_the_next_time_is_never_too_late(self) -> None:
        """No lease ends before the next time, and it is exact once looked at."""
        leases = Leases()
        assert leases.next_time() is None
        first, second = message(1), message(2)
        leases.give(first, 10.0, 0.0)
        leases.give(second, 10.0, 3.0)
        assert leases.next_time() == 10.0

        assert first.lease is not None
        del first.lease[first]
        assert leases.expired(10.0, 9) == []
        assert leases.next_time() == 13.0

    def test_no_more_than_the_limit(self) -> None:
        """At most so many are given, and the rest is due at once."""
        leases = Leases()
        for number in range(5):
            leases.give(message(number), 1.0 + number % 2, 0.0)

        assert len(leases.expired(9.0, 2)) == 2
        assert leases.next_time() == 1.0

    def test_lengths_that_nobody_uses_are_forgotten(self) -> None:
        """An empty round of a length leaves nothing behind."""
        leases = Leases()
        one = message()
        leases.give(one, 1.0, 0.0)
        assert one.lease is not None
        del one.lease[one]
        leases.expired(1.0, 9)

        assert leases._by_timeout == {}
        assert leases.next_time() is None

    def test_lengths_that_are_used_once_do_not_pile_up(self) -> None:
        """Though none of them has run out: whoever leases until a point in time has a length of its own each time."""
        leases = Leases()
        kept = message()
        leases.give(kept, 9000.0, 0.0)
        for number in range(1000):
            one = message(number)
            leases.give(one, 1000.0 + number, 0.0)
            assert one.lease is not None
            del one.lease[one]

        assert len(leases._by_timeout) < 200
        assert leases.expired(9000.0, 9) == [kept]
