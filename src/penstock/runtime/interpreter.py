"""What long work asks of Python itself, so that it takes less time, and others wait less for it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: How long a thread may keep the interpreter while another wants it. Whoever writes or waits gives it away and wants it
#: back a moment later: the thread that commits, with all who wait for a confirmation, and the event loop.
SWITCH_SECONDS = 0.00005


@contextmanager
def without_garbage() -> Iterator[None]:
    """Look for no garbage while many objects are made: Python looks again and again, and finds none. For moments only."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def in_small_turns() -> Iterator[None]:
    """Have threads take turns more often than every 5 ms."""
    seconds = sys.getswitchinterval()
    sys.setswitchinterval(min(seconds, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(seconds)
