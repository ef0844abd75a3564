"""Keeps leases alive from a thread of its own, so that they last while a handler blocks the event loop."""

import threading
from collections.abc import Callable


class Keeper:
    """Calls `keep` again and again until it is stopped."""

    def __init__(self, keep: Callable[[], None], seconds: float) -> None:
        self._keep = keep
        self._seconds = seconds
        self._is_changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-keeper", daemon=True)
        self._thread.start()

    def hurry(self, seconds: float) -> None:
        """Call at least this often from now on."""
        with self._is_changed:
            if seconds < self._seconds:
                self._seconds = seconds
                self._is_changed.notify()

    def stop(self) -> None:
        """Call no more."""
        with self._is_changed:
            self._is_stopped = True
            self._is_changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._is_changed:
            while not self._is_stopped:
                if not self._is_changed.wait(self._seconds):
                    self._keep()
