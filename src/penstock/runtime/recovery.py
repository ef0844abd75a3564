"""From a store to an engine: opening, loading the index, replaying what came after, and the index itself."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.engine import snapshot
from penstock.engine.engine import Engine
from penstock.engine.replay import Replay
from penstock.model.errors import StoreDamaged, StoreTooNew
from penstock.model.records import Record
from penstock.runtime.backup import Phases, no_phases
from penstock.runtime.restoring import check_finished, fill, read_back
from penstock.store.port import Recovered, Store

RECORD_BYTES = 45  # what a record takes besides its body, about


@dataclass(slots=True)
class Restored:
    """What was found."""

    replayed: int = 0  # records after the index
    replayed_bytes: int = 0  # of log that they take, about
    index_position: int = 0
    notes: list[str] = field(default_factory=list)


def restore(store: Store, engine: Engine, now: float, backup: str | os.PathLike[str] | None = None) -> Restored:
    """Open the store, and bring a new engine to where it was, or fill an empty store from a backup first."""
    recovered = store.open()
    try:
        if backup is not None:
            recovered = fill(store, recovered, backup)
        return _restore(store, engine, recovered, now)
    except BaseException:
        store.close()
        raise


def _restore(store: Store, engine: Engine, recovered: Recovered, now: float) -> Restored:
    found = Restored(index_position=recovered.index_position, notes=recovered.notes)
    replay = None
    try:
        if recovered.index is not None:
            state = _decoded(recovered.index)
            check_finished(state)
            snapshot.load(engine, state)
        replay = Replay(engine)
        for batch in recovered.batches:
            replay.apply(batch.positions, batch.records)
            found.replayed += len(batch.records)
            found.replayed_bytes += size_in_log(batch.records)
        replay.finish(now)
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError, msgspec.DecodeError) as error:
        raise StoreDamaged(
            f"the log cannot be replayed at position {engine.effects.position}: {type(error).__name__} {error}; "
            "its records contradict one another",
            key="store",
            position=engine.effects.position,
        ) from error
    store.adopt(engine.live())
    return found


def restore_backup(
    backup: str | os.PathLike[str], make: Callable[[], Store], now: float, phases: Phases = no_phases
) -> None:
    """Fill an empty store from a backup; then open it anew, as a broker that starts, and read back what it holds."""
    store = make()
    recovered = store.open()
    try:
        fill(store, recovered, backup, phases)
    finally:
        store.close()
    store = make()
    engine = Engine(recall=store.recall if store.recalls else None)
    restore(store, engine, now)
    try:
        read_back(store, engine.live(), backup, phases("reading back"))
    finally:
        store.close()


def size_in_log(records: list[Record]) -> int:
    """Return how many bytes of log records take, about."""
    return len(records) * RECORD_BYTES + sum([len(record[7]) for record in records])


def encoded(state: dict[str, Any]) -> bytes:
    """Return an engine's dumped state as bytes."""
    return msgspec.msgpack.encode(state)


def _decoded(index: bytes) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.msgpack.decode(index)
    if state["version"] > snapshot.VERSION:
        raise StoreTooNew(
            f"the index is of version {state['version']}, written by a newer Penstock; this one knows version "
            f"{snapshot.VERSION}. Use the newer one",
            key="store",
            found=state["version"],
            known=snapshot.VERSION,
        )
    return state
