"""Recovery: which runs the database has, and the last index. The batches after it are read like any others."""

import sys
from itertools import pairwise
from typing import Any

from penstock.store.port import Recovered
from penstock.store.postgresql.rows import BATCHES, TABLE, WINDOW_BYTES, Ask, Reader, RowRun, Rows, checked, damaged

_RUNS = """
    SELECT base, salt, compacted, last, size, records, published, published_bytes, oldest, newest
    FROM penstock.runs ORDER BY base
"""
_INDEX = "SELECT state, position FROM penstock.indexes"


def recover(rows: Rows, reader: Reader, ask: Ask) -> Recovered:
    """Learn which runs there are; return the last index, and what came after it."""
    found = ask(_RUNS, ())
    ends: tuple[Any, ...] = (sys.maxsize,)
    rows.runs = [_run(ask, values, stop) for values, (stop, *_) in pairwise([*found, ends])]
    state, position = next(iter(ask(_INDEX, ())), (None, 0))
    return Recovered(state, position, reader.batches(position, sys.maxsize), _notes(ask))


def _notes(ask: Ask) -> list[str]:
    if ask("SHOW fsync", ()) == [("on",)]:
        return []
    return ["PostgreSQL runs with fsync = off: when its machine crashes, what was confirmed may be lost"]


def _run(ask: Ask, values: tuple[Any, ...], stop: int) -> RowRun:
    base, salt, compacted, last, *numbers = values
    run = RowRun(base, salt, compacted=compacted)
    if last is None:
        _count(ask, run, stop)
    else:
        run.last, run.is_counted = last, True
        run.end, run.records, run.published, run.published_bytes, run.oldest, run.newest = numbers
    return run


def _count(ask: Ask, run: RowRun, stop: int) -> None:
    """Count what is in a run that was not full when its broker ended."""
    windows = [first for first, _ in ask(TABLE, (run.base, stop, WINDOW_BYTES))]
    for begin, end in pairwise([*windows, stop]):
        for first, at, data in ask(BATCHES, (begin, end)):
            if at != run.end:
                raise damaged(first, "the one before it is not there")
            run.count_found(checked(first, at, data, run.salt), at, len(data))
