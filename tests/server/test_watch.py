"""The log tells the operator what becomes of the store, once each time that something changes."""

import pytest

from penstock.engine.readers import Retention
from penstock.model.errors import StoreFailed
from penstock.model.limits import Limits
from penstock.runtime.runtime import Runtime
from penstock.server.house import House
from penstock.server.limits import ServerLimits
from penstock.server.watch import StoreWatch
from penstock.server.wheel import Wheel
from penstock.store.memory import Memory
from tests.server.manual_loop import ManualLoop


def test_changes_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """What the start has found, no room, room again, and the failure, after which there is nothing more to tell."""
    loop = ManualLoop()
    runtime = Runtime(Memory(), limits=Limits(), auto_create=True, retention=Retention(0.0, 0, 0))
    runtime.restored.notes.append("message 7 is lost")
    StoreWatch(House(runtime, ServerLimits(), 10, Wheel(loop.as_loop), loop.time))
    told: list[list[str]] = [[f"{record.levelname} {record.message}" for record in caplog.records]]
    for has_room, failure in ((True, None), (False, None), (True, None), (False, StoreFailed("on fire"))):
        runtime.has_room, runtime.failure = has_room, failure
        caplog.clear()
        loop.advance(5.0)
        told.append([f"{record.levelname} {record.message}" for record in caplog.records])
    assert told == [
        ["WARNING message 7 is lost"],
        [],
        ["WARNING the disk is full; new messages are refused, settling goes on"],
        ["WARNING there is room on the disk again; messages are accepted"],
        ["ERROR nothing is promised any more, start the broker anew: on fire"],
    ]
