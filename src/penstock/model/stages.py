"""The stages of a message's life that a publisher can be told of, and the levels of persistence."""

from collections.abc import Iterable
from enum import IntFlag, StrEnum

from penstock.model.errors import BadRequest


class Stage(IntFlag):
    """A stage, or a set of them; the values stand in journals."""

    READY = 1
    WRITE = 2
    SYNC = 4
    ASSIGN = 8
    FINISH = 16
    RETRY = 32
    DROP = 64


class Level(StrEnum):
    """How far something must be persisted before it is told."""

    READY = "ready"
    WRITE = "write"
    SYNC = "sync"


_LEVELS = {level.value: level for level in Level}
_NONE = Stage(0)
STAGE_NAMES = {stage.name.lower(): stage for stage in Stage if stage.name is not None}
#: Stages that the engine knows of by itself; `write` and `sync` come from the store.
ENGINE_STAGES = Stage.READY | Stage.ASSIGN | Stage.FINISH | Stage.RETRY | Stage.DROP


def checked_level(level: object, key: str) -> Level:
    """Return the level of this name."""
    found = _LEVELS.get(level) if isinstance(level, str) else None
    if found is None:
        raise BadRequest(f"{key} must be ready, write or sync, not {level!r}", key=key)
    return found


def checked_stages(names: Iterable[object]) -> Stage:
    """Return the set of the named stages."""
    if names == ():
        return _NONE
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadRequest(f"notify must be a list of stages, not {names!r}", key="notify")
    stages = _NONE
    for name in names:
        stage = STAGE_NAMES.get(name) if isinstance(name, str) else None
        if stage is None:
            raise BadRequest(f"notify names the stage {name!r}; stages are {', '.join(STAGE_NAMES)}", key="notify")
        stages |= stage
    return stages
