"""An event loop's clock by hand, for tests in which time is an argument."""

import asyncio
from collections.abc import Callable
from typing import Any, cast


class Timer:
    """A call that is due."""

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        """Call it no more."""
        self.is_cancelled = True


class ManualLoop:
    """The part of a loop that a wheel uses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []
        #: How often it woke up.
        self.wake_ups = 0

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        """Return it as what it stands for."""
        return cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        """Tell the time."""
        return self.now

    def call_at(self, due: float, action: Callable[[], None], *_: Any) -> Timer:
        """Call this then."""
        timer = Timer(due, action)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what is due meanwhile, each at its time."""
        end = self.now + seconds
        while True:
            self.timers = [timer for timer in self.timers if not timer.is_cancelled]
            due = [timer for timer in self.timers if timer.due <= end]
            if not due:
                break
            first = min(due, key=lambda timer: timer.due)
            self.timers.remove(first)
            self.now = max(self.now, first.due)
            self.wake_ups += 1
            first.action()
        self.now = end
