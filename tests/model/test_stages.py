"""Stages and levels by name."""

import pytest

from penstock.model.errors import BadRequest
from penstock.model.stages import ENGINE_STAGES, STAGE_NAMES, Level, Stage, checked_level, checked_stages


def test_the_values_stand_in_journals() -> None:
    """No stage ever changes its value."""
    assert {name: int(stage) for name, stage in STAGE_NAMES.items()} == {
        "ready": 1,
        "write": 2,
        "sync": 4,
        "assign": 8,
        "finish": 16,
        "retry": 32,
        "drop": 64,
    }


def test_stages_by_name() -> None:
    """Names make a set; what is no name of a stage is refused."""
    assert checked_stages(["sync", "drop", "sync"]) == Stage.SYNC | Stage.DROP
    assert checked_stages([]) == Stage(0)
    for wrong in ("synced", 4, None, "READY"):
        with pytest.raises(BadRequest) as caught:
            checked_stages([wrong])
        assert caught.value.key == "notify"


def test_persistence_is_the_stores_to_tell() -> None:
    """The engine knows of all stages but `write` and `sync`."""
    assert Stage(0) == ENGINE_STAGES & (Stage.WRITE | Stage.SYNC)
    assert Stage(127) == ENGINE_STAGES | Stage.WRITE | Stage.SYNC


def test_levels_by_name() -> None:
    """There are three levels."""
    assert checked_level("write", "sync") is Level.WRITE
    for wrong in ("disk", None, 1, b""):
        with pytest.raises(BadRequest):
            checked_level(wrong, "sync")
