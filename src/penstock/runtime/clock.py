"""The broker's time: it runs steadily, whatever is done to the clock on the wall."""

import time
from collections.abc import Callable


class Clock:
    """Seconds since the epoch as they were when the broker started, plus the time that has passed since.

    A jump of the wall clock neither ends leases nor keeps delays waiting; it is followed at the next start.
    """

    __slots__ = ("_monotonic", "_offset")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """Return the time."""
        return self._monotonic() + self._offset
