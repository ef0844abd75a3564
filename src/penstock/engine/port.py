"""The engine as protocols see it: the names that a session uses, and what it asks of whoever runs the engine."""

from collections.abc import Callable
from typing import Protocol

from penstock.engine.clients import Client
from penstock.engine.consumers import OWN_LEASE, Consumer
from penstock.engine.dead_letters import Letter
from penstock.engine.effects import Notice
from penstock.engine.engine import Engine
from penstock.engine.inspection import browse, browsed, headers_of, queue_status, topic_status
from penstock.engine.queue import Queue
from penstock.engine.selection import Selection, is_pattern
from penstock.engine.transactions import Outcome, Publish, Settle, check_operations, settle
from penstock.engine.writes import Write
from penstock.model.stages import Level

__all__ = [
    "OWN_LEASE",
    "BrokerPort",
    "Client",
    "Consumer",
    "Engine",
    "Letter",
    "Notice",
    "Outcome",
    "Publish",
    "Queue",
    "Selection",
    "Settle",
    "Write",
    "browse",
    "browsed",
    "check_operations",
    "headers_of",
    "is_pattern",
    "queue_status",
    "settle",
    "topic_status",
]


class BrokerPort(Protocol):
    """An engine at work: time goes by, and what it did is persisted. `penstock.runtime.runtime.Runtime` is one."""

    engine: Engine
    now: Callable[[], float]

    def check(self) -> None:
        """Raise if nothing can be recorded any more."""

    def check_room(self) -> None:
        """Raise if no message can be accepted now."""

    def touch(self, size: int = 0) -> bool:
        """Take note that the engine was called, with a body of `size` bytes; returns whether the store is behind."""

    def watch(self, tell: Callable[[], None]) -> None:
        """Call this when the broker fails or closes."""

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Call it no more."""

    def after(self, level: Level, action: Callable[[], None]) -> None:
        """Call `action` when all that was recorded so far is persisted as far as `level`."""

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` when this wake-up is over."""
