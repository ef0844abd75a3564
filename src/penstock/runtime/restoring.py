"""Filling an empty store from a backup, and reading back what it then holds.

A store that is being filled has an index that says so, and names the backup. Whoever finds it starts no broker there;
the same restore goes on where it was killed, since a store keeps batches in order and without holes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.model.errors import BadRequest, StoreDamaged, StoreUnreadable
from penstock.model.records import Record
from penstock.runtime.backup import PART_BYTES, Phases, Tell, check_backup, head_of, no_phases, read_backup
from penstock.store.port import Recovered, Store

#: Of messages between two syncs: what is done again after a kill.
SYNC_BYTES = 64 * PART_BYTES
_RESTORING = "restoring"


def fill(store: Store, found: Recovered, path: str | os.PathLike[str], phases: Phases = no_phases) -> Recovered:
    """Fill a store that was opened, and return what it then holds; the whole file is checked before."""
    check_backup(path, phases("checking"))
    head = head_of(path)
    last = _begun(store, found, head.salt)
    resident: list[Record] | None = None if store.recalls else []
    unsynced = 0
    for part in read_backup(path, phases("restoring")):
        if part.is_last:
            store.sync()
            index = _with_records(part.index_bytes(), resident)
            store.save(head.position, index)
            return Recovered(index, head.position, iter(()), [f"restored from the backup {os.fspath(path)}"])
        records = part.records()
        if resident is not None:
            resident += records
        for run in _runs([record for record in records if record[3] > last]):
            store.write(run[0][3], run, ())
        unsynced += len(part.raw)
        if unsynced >= SYNC_BYTES:
            store.sync()
            unsynced = 0
    raise AssertionError  # a backup that was checked ends with its index


def check_finished(state: dict[str, Any]) -> None:
    """Raise if an index says that its store is being filled."""
    if _RESTORING in state:
        raise StoreUnreadable(
            "a restore into this store was not finished: run it again with the same backup, and it goes on", key="store"
        )


def read_back(store: Store, live: Iterable[Sequence[int]], path: str | os.PathLike[str], tell: Tell) -> None:
    """Raise unless a store from which a broker would start with these messages holds just what a backup does."""
    count = sum(map(len, live))
    head = head_of(path)
    if count != head.messages:
        raise _differs(f"{count} messages instead of {head.messages}")
    for part in read_backup(path, tell):
        if part.is_last or not store.recalls:
            continue
        records = part.records()
        if store.recall([record[3] for record in records]) != records:
            raise _differs(f"other messages near {records[0][3]}")


def _begun(store: Store, found: Recovered, salt: int) -> int:
    """Mark an empty store, and return 0; of one that was being filled from this backup the last position that it has."""
    last = 0
    for batch in found.batches:
        last = batch.positions[-1]
    if found.index is None and not last:
        store.save(1, msgspec.msgpack.encode({"version": 1, _RESTORING: salt}))
        return 0
    if found.index is not None and msgspec.msgpack.decode(found.index).get(_RESTORING) == salt:
        return last
    raise BadRequest("a backup is restored into an empty store only, and this one has something in it", key="backup")


def _with_records(index: bytes, resident: list[Record] | None) -> bytes:
    """Return the index as a store needs it: one that cannot recall messages has them in there."""
    if resident is None:
        return index
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(index), "records": resident})


def _runs(records: list[Record]) -> Iterator[list[Record]]:
    """Yield runs of records whose sequences follow one another without a gap."""
    begin = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or records[at][3] != records[at - 1][3] + 1:
            yield records[begin:at]
            begin = at


def _differs(what: str) -> StoreDamaged:
    return StoreDamaged(f"reading back what was restored found {what}; the store cannot be relied on", key="store")
