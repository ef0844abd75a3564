"""The house: what all connections share, and who is there."""

from collections.abc import Callable
from typing import Protocol

from penstock.runtime.runtime import Runtime
from penstock.server.limits import ServerLimits
from penstock.server.wheel import Wheel


class Guest(Protocol):
    """Whoever has a connection, from its first byte to its last."""

    def stop(self) -> None:
        """Release what the peer holds, and close."""


class House:
    """The broker, the wheel, the limits, and all guests."""

    __slots__ = ("connections_max", "guests", "limits", "now", "runtime", "wheel")

    def __init__(
        self, runtime: Runtime, limits: ServerLimits, connections_max: int, wheel: Wheel, now: Callable[[], float]
    ) -> None:
        self.runtime = runtime
        #: As many as the limits say, or fewer if the system does not allow so many files.
        self.connections_max = connections_max
        self.limits = limits
        self.wheel = wheel
        self.now = now
        self.guests: set[Guest] = set()

    @property
    def has_room(self) -> bool:
        """Whether one more may come."""
        return len(self.guests) < self.connections_max
