"""Sending what a replay has chosen: dead letters are moved by the broker, each once; of all else copies are published.

A dead letter is named to the broker by its place in its queue, so what was moved before cannot be moved again, whoever was
killed meanwhile. It keeps its headers, as one does that is redriven in any other way.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from pyspark.sql import DataFrame

from penstock.client.client import Client, connect
from penstock.pipeline.broker_client import BrokerClient
from penstock.pipeline.jobs.replay import Replay, Target, target_of

#: Called with how many are done, and of how many.
Progress = Callable[[int, int], None]
#: Messages that are sent at once; with a rate, those of a tenth of a second, so that it is kept evenly.
_AT_ONCE = 500
_PARTS_OF_A_SECOND = 10

Row = dict[str, Any]


@dataclass(slots=True)
class Sent:
    """What became of messages: sent, no longer in their dead letter queue, or refused and still in it."""

    moved: int = 0
    gone: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        """How many were looked at."""
        return self.moved + self.gone + self.refused


class Pace:
    """Keeps to a number of messages a second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._started = time.monotonic()
        self.at_once = _AT_ONCE if rate is None else max(1, min(_AT_ONCE, int(rate / _PARTS_OF_A_SECOND)))

    def pause_seconds(self, sent: int) -> float:
        """Return how long to wait when so many were sent."""
        return 0.0 if self._rate is None else max(0.0, self._started + sent / self._rate - time.monotonic())


def send(url: str, rows: DataFrame, replay: Replay, total: int, progress: Progress) -> Sent:
    """Send the messages in the order of their publishes; returns when all are on the broker's disk."""
    if replay.moves:
        return _redriven(url, rows, replay, total, progress)
    return asyncio.run(_published(url, rows, replay, total, progress))


def _redriven(url: str, rows: DataFrame, replay: Replay, total: int, progress: Progress) -> Sent:
    broker, pace, sent = BrokerClient(url), Pace(replay.rate), Sent()
    places = ("grave", "grave_tags", "channel", "tags")
    letters = rows.select(*places, "channel_type", "shard", "moved_to", "key", "group").orderBy(*places, "moved_to")
    for (grave, tags, target), some in groupby(_rows(letters), lambda row: _way(row, replay)):
        if target is None:
            continue
        for part in _parts(some, pace.at_once):
            wanted = {
                "queue": grave, "tags": tags, "target": target.name, "target_tags": target.tags,
                "letters": [_letter(row) for row in part],
            }  # fmt: skip
            answer = broker.ask(dict[str, int], "POST", "/redrives", wanted)
            sent.moved += answer["moved"]
            sent.gone += answer["gone"]
            sent.refused += answer["refused"]
            progress(sent.total, total)
            time.sleep(pace.pause_seconds(sent.moved))
    return sent


def _way(row: Row, replay: Replay) -> tuple[str, list[str], Target | None]:
    return row["grave"], row["grave_tags"], target_of(row, replay)


def _letter(row: Row) -> Row:
    return {"sequence": row["moved_to"], "key": row["key"], "group": row["group"]}


async def _published(url: str, rows: DataFrame, replay: Replay, total: int, progress: Progress) -> Sent:
    run, pace, sent = uuid.uuid4().hex, Pace(replay.rate), Sent()
    ways = ((row, target_of(row, replay)) for row in _rows(rows.orderBy("shard", "sequence")))
    wanted = ((row, target) for row, target in ways if target is not None)
    async with connect(url) as broker:
        while part := list(islice(wanted, pace.at_once)):
            await asyncio.gather(*(_publish(broker, row, target, run) for row, target in part))
            sent.moved += len(part)
            progress(sent.moved, total)
            await asyncio.sleep(pace.pause_seconds(sent.moved))
    return sent


async def _publish(broker: Client, row: Row, target: Target, run: str) -> None:
    """Send a message: once, also if the connection is lost before its confirmation has come."""
    given: Row = {"headers": row["headers"], "dedup_id": f"{run}-{row['shard']}-{row['sequence']}"}
    if row["priority"] is not None:
        given["priority"] = row["priority"]
    if target.type == "topic":
        await broker.publish(target.name, bytes(row["body"]), **given)
        return
    given |= {"tags": target.tags, "key": row["key"], "group": row["group"]}
    await broker.enqueue(target.name, bytes(row["body"]), **given)


def _rows(rows: DataFrame) -> Iterator[Row]:
    return (row.asDict() for row in rows.toLocalIterator())


def _parts(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while part := list(islice(rows, size)):
        yield part
