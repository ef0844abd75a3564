"""Readers and pins: what of the log is kept for them."""

import pytest

from penstock.engine.readers import LogStretch, Reader, Retention
from penstock.model.errors import NoObject, NotAssigned, TooLarge
from penstock.model.limits import Limits
from tests.engine.rig import Rig

STRETCHES = [LogStretch(first, first + 99, 100, float(first)) for first in range(0, 500, 100)]
NONE = Retention(age=0.0, bytes=0, reader_hold=10**9)


def floor(rig: Rig, retention: Retention, now: float = 500.0) -> int:
    return rig.engine.readers.floor(STRETCHES, 500, now, retention)


class TestReaders:
    """Named places in the log."""

    def test_moving_makes_and_moves(self) -> None:
        """A reader is made by its first move, and survives a restart where it was moved to."""
        rig = Rig()
        rig.engine.readers.move("spark", 7, 1.0)
        rig.engine.readers.move("spark", 9, 2.0)

        assert rig.restart().engine.readers.by_name == {"spark": Reader("spark", 9, 2.0)}

    def test_removing(self) -> None:
        """A removed reader is gone, after a restart too; there is no second time."""
        rig = Rig()
        rig.engine.readers.move("spark", 7, 1.0)
        rig.engine.readers.remove("spark", 2.0)

        assert rig.restart().engine.readers.by_name == {}
        with pytest.raises(NoObject):
            rig.engine.readers.remove("spark", 3.0)

    def test_moving_over_records_of_readers_is_not_recorded(self) -> None:
        """Else two queries that have read all would go on forever, each telling the other of its move."""
        rig = Rig()
        rig.engine.readers.move("one", 1, 1.0)
        rig.engine.readers.move("two", 1, 1.0)
        end = rig.engine.effects.position

        for reader in ("one", "two", "one"):
            rig.engine.readers.move(reader, rig.engine.effects.position, 2.0)
        assert rig.engine.effects.position == end + 2
        assert {reader.position for reader in rig.engine.readers.by_name.values()} == {end + 1, end + 2}

        rig.publish()
        rig.engine.readers.move("two", rig.engine.effects.position, 3.0)
        assert rig.restart().engine.readers.by_name["two"].position > end + 2

    def test_one_reads_at_a_time(self) -> None:
        """Who takes a reader over has it; after a restart it is whose query comes first."""
        rig = Rig()
        rig.engine.readers.take("spark", "one", 7, 1.0)
        assert rig.engine.readers.take("spark", "two", 9, 1.0).position == 7

        rig.engine.readers.move_own("spark", "two", 8, 2.0)
        with pytest.raises(NotAssigned):
            rig.engine.readers.move_own("spark", "one", 9, 3.0)
        again = rig.restart().engine.readers
        assert again.move_own("spark", "one", 9, 4.0).position == 9
        with pytest.raises(NotAssigned):
            again.move_own("spark", "two", 10, 5.0)

    def test_there_may_be_too_many(self) -> None:
        """A reader over the limit is refused; those that are there move on."""
        rig = Rig(limits=Limits(readers_max=1))
        rig.engine.readers.move("a", 1, 1.0)
        before = rig.engine.effects.position

        with pytest.raises(TooLarge):
            rig.engine.readers.move("b", 1, 1.0)
        assert rig.engine.effects.position == before
        assert rig.engine.readers.move("a", 2, 1.0).position == 2


class TestFloor:
    """How much of the log is kept as it was written."""

    def test_by_age_and_bytes_whichever_is_less(self) -> None:
        """Settled history is kept for so long and so many bytes."""
        rig = Rig()

        assert floor(rig, Retention(age=1e9, bytes=10**9)) == 0
        assert floor(rig, Retention(age=250.0, bytes=10**9)) == 300
        assert floor(rig, Retention(age=1e9, bytes=200)) == 300
        assert floor(rig, Retention(age=0.0, bytes=0)) == 500

    def test_a_reader_holds_more(self) -> None:
        """What a reader has not read is kept, up to reader_hold."""
        rig = Rig()
        rig.engine.readers.move("spark", 250, 1.0)

        assert floor(rig, NONE) == 200
        assert floor(rig, Retention(0.0, 0, 250)) == 300

    def test_the_slowest_counts(self) -> None:
        """Of several readers and pins the one furthest behind holds."""
        rig = Rig()
        rig.engine.readers.move("quick", 450, 1.0)
        rig.engine.readers.move("slow", 350, 1.0)
        assert rig.engine.readers.held_from(1.0) == 350

        rig.engine.readers.pin(120, 1.0)
        assert rig.engine.readers.held_from(1.0) == 120

    def test_a_pin_holds_for_a_time(self) -> None:
        """A pin holds until it is taken away or ten minutes have passed."""
        rig = Rig()
        pin = rig.engine.readers.pin(100, 0.0)
        rig.engine.readers.pin(200, 0.0)

        assert floor(rig, NONE, 599.9) == 100
        rig.engine.readers.unpin(pin)
        assert floor(rig, NONE, 599.9) == 200
        assert floor(rig, NONE, 600.0) == 500
