"""One timer serves all connections."""

from math import inf

import pytest

from penstock.server.wheel import TICK_SECONDS, Timed, Wheel
from tests.server.manual_loop import ManualLoop


class Waiting(Timed):
    """Notes its turns, and wants the next one so many seconds later."""

    def __init__(self, loop: ManualLoop, every: float = inf) -> None:
        super().__init__()
        self._loop = loop
        self._every = every
        self.turns: list[float] = []

    def turn(self, now: float) -> float:
        assert now == self._loop.now
        self.turns.append(now)
        return now + self._every


class Failing(Waiting):
    """Fails in its turn."""

    def turn(self, now: float) -> float:
        super().turn(now)
        raise RuntimeError("on purpose")


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def wheel(loop: ManualLoop) -> Wheel:
    return Wheel(loop.as_loop)


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.07, 1.0, 59.99, 3600.0])
def test_a_turn_comes_in_time(loop: ManualLoop, wheel: Wheel, seconds: float) -> None:
    """At most a tick too early, and never in the wake-up that asked for it."""
    waiting = Waiting(loop)
    wheel.put(waiting, loop.now + seconds)
    loop.advance(7200.0)
    (turn,) = waiting.turns
    assert 1000.0 < turn <= 1000.0 + max(seconds, TICK_SECONDS) + 1e-6
    assert turn >= 1000.0 + seconds - TICK_SECONDS


def test_who_wants_turns_again_and_again_gets_them(loop: ManualLoop, wheel: Wheel) -> None:
    """At the pace that each asks for."""
    slow, quick = Waiting(loop, 10.0), Waiting(loop, 1.0)
    wheel.put(slow, 0.0)
    wheel.put(quick, 0.0)
    loop.advance(100.0)
    assert 10 <= len(slow.turns) <= 11
    assert 100 <= len(quick.turns) <= 106


def test_a_second_wish_replaces_the_first(loop: ManualLoop, wheel: Wheel) -> None:
    """Earlier or later, and `inf` is none at all."""
    earlier, later, never = Waiting(loop), Waiting(loop), Waiting(loop)
    for waiting, due in ((earlier, 1.0), (later, 9.0), (never, inf)):
        wheel.put(waiting, loop.now + 5.0)
        wheel.put(waiting, loop.now + due)
    loop.advance(2.0)
    assert (len(earlier.turns), len(later.turns)) == (1, 0)
    loop.advance(5.0)
    assert later.turns == []
    loop.advance(5.0)
    assert (len(earlier.turns), len(later.turns), len(never.turns)) == (1, 1, 0)


def test_who_is_dropped_has_no_turn(loop: ManualLoop, wheel: Wheel) -> None:
    """Also when it never waited."""
    waiting = Waiting(loop)
    wheel.drop(waiting)
    wheel.put(waiting, loop.now + 1.0)
    wheel.drop(waiting)
    loop.advance(10.0)
    assert waiting.turns == []


def test_many_share_few_wake_ups(loop: ManualLoop, wheel: Wheel) -> None:
    """Ten thousand that beat every few seconds cost as many wake-ups as there are ticks, at most."""
    everybody = [Waiting(loop, 5.0 + number % 7 / 10) for number in range(10_000)]
    for waiting in everybody:
        wheel.put(waiting, loop.now)
    loop.advance(60.0)
    assert all(10 <= len(waiting.turns) <= 13 for waiting in everybody)
    assert loop.wake_ups <= 60.0 / TICK_SECONDS


def test_a_turn_that_fails_costs_nobody_else_theirs(
    loop: ManualLoop, wheel: Wheel, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has what went wrong; who failed has no turn any more."""
    failing, others = Failing(loop), [Waiting(loop, 1.0) for _ in range(3)]
    for waiting in (others[0], failing, *others[1:]):
        wheel.put(waiting, loop.now + 1.0)
    loop.advance(10.0)
    assert len(failing.turns) == 1
    assert all(len(waiting.turns) >= 9 for waiting in others)
    assert "on purpose" in caplog.text


def test_a_wheel_that_has_stopped_turns_no_more(loop: ManualLoop, wheel: Wheel) -> None:
    """Whoever waited."""
    waiting = Waiting(loop, 1.0)
    wheel.put(waiting, loop.now + 1.0)
    wheel.stop()
    loop.advance(10.0)
    assert waiting.turns == []
