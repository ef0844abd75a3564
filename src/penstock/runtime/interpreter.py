"""What long work asks of Python itself, so that it takes less time, and others wait less for it."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How long a thread may keep the interpreter while another wants it. Whoever writes or waits gives it away and wants it
#: back a moment later: the thread that commits, with all who wait for a confirmation, and the event loop.
SWITCH_SECONDS = 0.00005


class _Wish:
    """A change of the whole process, which holds from the first who wants it to the last, whatever thread they are in."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """`change` makes it, and returns what takes it back."""
        self._change = change
        self._take_back: Callable[[], object]
        self._lock = threading.Lock()
        self._wanted = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._wanted:
                self._take_back = self._change()
            self._wanted += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    self._take_back()


def _look_for_no_garbage() -> Callable[[], object]:
    if not gc.isenabled():
        return lambda: None
    gc.disable()
    return gc.enable


def _switch_often() -> Callable[[], object]:
    seconds = sys.getswitchinterval()
    sys.setswitchinterval(min(seconds, SWITCH_SECONDS))
    return lambda: sys.setswitchinterval(seconds)


#: Looks for no garbage while many objects are made: Python looks again and again, and finds none. For moments only.
without_garbage = _Wish(_look_for_no_garbage)
#: Has threads take turns more often than every 5 ms.
in_small_turns = _Wish(_switch_often)
