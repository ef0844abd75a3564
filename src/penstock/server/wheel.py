"""The wheel: one timer of the event loop for all connections.

Each connection has one time at which it wants its turn, for the next of all that it waits for. The wheel has a spoke for
each tick that somebody waits for, so ten thousand connections that beat every few seconds cost a handful of wake-ups.
"""

import logging
from asyncio import AbstractEventLoop, TimerHandle
from heapq import heappop, heappush
from math import inf

LOG = logging.getLogger("penstock.server")
#: How much earlier than asked for a turn may come, and how close together two turns of one connection can be.
TICK_SECONDS = 0.05


class Timed:
    """Who may wait on a wheel."""

    #: The spoke of the wheel that it waits at.
    __slots__ = ("spoke",)

    def __init__(self) -> None:
        self.spoke: int | None = None

    def turn(self, now: float) -> float:
        """Do what is due by `now`; returns when the next turn is wanted, `inf` for none."""
        raise NotImplementedError


class Wheel:
    """See the module."""

    __slots__ = ("_armed", "_loop", "_order", "_spokes", "_timer")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._spokes: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []
        self._timer: TimerHandle | None = None
        self._armed: float = inf

    def put(self, timed: Timed, due: float) -> None:
        """Give somebody a turn at `due` or up to a tick earlier, instead of the one it had; never in this wake-up."""
        self.drop(timed)
        if due == inf:
            return
        spoke = max(int(due / TICK_SECONDS), int(self._loop.time() / TICK_SECONDS) + 1)
        waiting = self._spokes.get(spoke)
        if waiting is None:
            waiting = self._spokes[spoke] = {}
            heappush(self._order, spoke)
            if spoke < self._armed:
                self._arm(spoke)
        waiting[timed] = None
        timed.spoke = spoke

    def drop(self, timed: Timed) -> None:
        """Give somebody no turn any more."""
        if timed.spoke is not None:
            waiting = self._spokes.get(timed.spoke)
            if waiting is not None:
                waiting.pop(timed, None)
            timed.spoke = None

    def stop(self) -> None:
        """Give nobody a turn any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._spokes.clear()
        self._order.clear()

    def _arm(self, spoke: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = spoke
        self._timer = self._loop.call_at(spoke * TICK_SECONDS, self._go_round)

    def _go_round(self) -> None:
        armed, self._timer, self._armed = self._armed, None, inf
        now = self._loop.time()
        last = max(int(now / TICK_SECONDS), armed)  # the spoke that was waited for has come, however that is rounded
        while self._order and self._order[0] <= last:
            for timed in self._spokes.pop(heappop(self._order)):
                timed.spoke = None
                self.put(timed, _turned(timed, now))
        if self._order:
            self._arm(self._order[0])


def _turned(timed: Timed, now: float) -> float:
    """Give somebody its turn; what goes wrong in it must not cost the others theirs."""
    try:
        return timed.turn(now)
    except Exception:
        LOG.exception("a connection's turn failed")
        return inf
