"""The watch: tells the log, and so the operator, what becomes of the store."""

import logging
from math import inf

from penstock.server.house import House
from penstock.server.wheel import Timed

LOG = logging.getLogger("penstock.store")
LOOK_SECONDS = 1.0


class StoreWatch(Timed):
    """Tells what was found at start, and looks after the store every second."""

    __slots__ = ("_had_room", "_house")

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self._had_room = True
        for note in house.runtime.restored.notes:
            LOG.warning("%s", note)
        house.wheel.put(self, house.now())

    def turn(self, now: float) -> float:
        """Tell what has changed since the last look."""
        runtime = self._house.runtime
        if runtime.failure is not None:
            if runtime.store.is_shared:
                return inf  # whoever waits for the store to come back tells of it
            LOG.error("nothing is promised any more, start the broker anew: %s", runtime.failure)
            return inf
        if runtime.has_room is not self._had_room:
            self._had_room = runtime.has_room
            if self._had_room:
                LOG.warning("there is room on the disk again; messages are accepted")
            else:
                LOG.warning("the disk is full; new messages are refused, settling goes on")
        return now + LOOK_SECONDS
