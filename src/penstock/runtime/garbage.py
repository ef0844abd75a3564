"""Keeping Python from looking for garbage while many objects are made: it looks again and again, and finds none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_alone() -> Iterator[None]:
    """Look for no garbage; for moments only, since all threads are concerned."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
