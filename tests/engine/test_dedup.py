"""Dedup ids: what a channel remembers, and for how long."""

import pytest

from penstock.engine.dedup import DedupWindow
from penstock.model.limits import Limits
from tests.engine.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Return an engine with an empty queue `q`."""
    rig = Rig()
    rig.queue(dedup_window=10.0)
    rig.topic(dedup_window=10.0, retain_count=9)
    return rig


class TestWindow:
    """The window by itself."""

    def test_an_id_is_known_within_the_window(self) -> None:
        """An id is known from its first message until the window is over."""
        window = DedupWindow()
        window.remember("a", 7, 100.0, 10.0, 9)

        assert window.find("a", 109.9, 10.0) == 7
        assert window.find("a", 110.0, 10.0) is None
        assert window.find("b", 100.0, 10.0) is None

    def test_the_oldest_are_forgotten_first(self) -> None:
        """Over the limit the oldest ids go; each new one lets two go that are past the window."""
        window = DedupWindow()
        for number in range(5):
            window.remember(str(number), number, float(number), 100.0, 3)
        assert [one for one, _, _ in window.items()] == ["2", "3", "4"]

        window.remember("5", 5, 200.0, 100.0, 9)
        assert [one for one, _, _ in window.items()] == ["4", "5"]

    def test_forgetting_has_a_limit(self) -> None:
        """No more ids than asked for are forgotten at once."""
        window = DedupWindow()
        for number in range(5):
            window.remember(str(number), number, 0.0, 100.0, 9)

        assert (window.forget(1000.0, 100.0, 3), window.forget(1000.0, 100.0, 3), len(window)) == (3, 2, 0)

    def test_seen_again_after_the_window_is_young_again(self) -> None:
        """An id that comes again after its window is remembered anew."""
        window = DedupWindow()
        window.remember("a", 1, 0.0, 10.0, 9)
        window.remember("a", 2, 20.0, 10.0, 9)

        assert window.find("a", 29.0, 10.0) == 2


class TestChannels:
    """Publishing with a dedup id."""

    def test_a_duplicate_is_answered_as_the_first_and_not_stored(self, rig: Rig) -> None:
        """Within the window the first one's sequence is the answer, even when that is settled."""
        first = rig.publish(b"1", dedup_id="d")
        assert rig.drain() == [b"1"]

        assert rig.publish(b"2", dedup_id="d") == first
        assert rig.drain() == []

    def test_after_the_window_it_is_new(self, rig: Rig) -> None:
        """When the window is over the id says nothing any more."""
        first = rig.publish(dedup_id="d")
        rig.now += 10.0

        assert rig.publish(dedup_id="d") != first
        assert rig.queue().length == 2

    def test_each_channel_has_its_own(self, rig: Rig) -> None:
        """The same id in another queue or topic is another one."""
        numbers = {rig.publish(dedup_id="d"), rig.publish(dedup_id="d", tags="a"), rig.tell(dedup_id="d")}

        assert len(numbers) == 3

    def test_it_is_looked_at_before_the_key(self, rig: Rig) -> None:
        """A duplicate replaces nothing."""
        rig.publish(b"1", key="k", dedup_id="d")
        rig.publish(b"2", key="k")
        rig.publish(b"3", key="k", dedup_id="d")

        assert rig.drain() == [b"2"]

    def test_it_is_looked_at_before_room(self, rig: Rig) -> None:
        """A duplicate of a message in a full queue is no overflow."""
        rig.queue("r", max_length=1)
        first = rig.publish(name="r", dedup_id="d")

        assert rig.publish(name="r", dedup_id="d") == first

    def test_topics_too(self, rig: Rig) -> None:
        """A duplicate in a topic goes to nobody."""
        consumer = rig.listen()
        first = rig.tell(dedup_id="d")

        assert rig.tell(dedup_id="d") == first
        assert len(rig.receive(consumer)) == 1

    @pytest.mark.parametrize("indexed", [True, False])
    def test_the_window_survives_a_restart(self, indexed: bool) -> None:
        """After a restart the ids are known, for what is left of the window."""
        rig = Rig(recalls=True)
        rig.queue(dedup_window=10.0)
        first, told = rig.publish(dedup_id="d"), rig.tell(dedup_id="d")
        rig.drain()
        rig.now += 5.0
        index, position = (rig.index(), rig.engine.effects.position) if indexed else (None, 0)
        after = rig.restart(index=index, from_position=position)

        assert (after.publish(dedup_id="d"), after.tell(dedup_id="d")) == (first, told)
        after.now += 5.0
        assert after.publish(dedup_id="d") != first

    def test_the_sweeper_forgets(self, rig: Rig) -> None:
        """Ids past the window go by themselves, and there is a limit to how many are known."""
        rig.publish(dedup_id="d")
        rig.wait(10.0)
        assert len(rig.queue().dedup) == 0

        small = Rig(limits=Limits(dedup_ids_max=2))
        for number in range(3):
            small.publish(dedup_id=str(number))
        assert len(small.queue().dedup) == 2
