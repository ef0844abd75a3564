"""`penstock pipeline replay`: messages out of the lake into a broker, chosen by SQL and sent no faster than wanted.

A dead letter keeps its headers, as one does that the broker itself redrives. The messages stay where they are: in the
lake, and in the dead letter queue.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.client.client import Client, connect
from penstock.model.errors import BadRequest
from penstock.pipeline.jobs.session import sentence_of
from penstock.pipeline.tables.dead_letters import deaths
from penstock.pipeline.tables.lake import Lake

#: Called with how many were sent, and of how many.
Progress = Callable[[int, int], None]
MESSAGES, DEAD_LETTERS = "messages", "dead_letters"
#: Messages that are sent at once; with a rate, those of a tenth of a second, so that it is kept evenly.
_AT_ONCE = 500
_PARTS_OF_A_SECOND = 10

_COLUMNS = (
    "shard",
    "sequence",
    "channel_type",
    "channel",
    "tags",
    "time",
    "priority",
    "headers",
    "key",
    "group",
    "body",
)
_ABOUT_DEATHS = ("subscriber", "reason", "signature", "attempts", "moved_to")


@dataclass(slots=True, frozen=True)
class Replay:
    """Which messages go where. `target`: a queue for all of them; None: each to where it was."""

    source: str
    where: str | None = None
    target: str | None = None
    rate: float | None = None


@dataclass(slots=True, frozen=True)
class Replayed:
    """How many messages were sent, or would be, by where to; and how many could not be: dead letters of topics."""

    targets: dict[str, int]
    passed_over: int = 0


def chosen(lake: Lake, replay: Replay) -> DataFrame:
    """Return the messages that are meant: the columns to choose by, and the body, also as `text`."""
    log = lake.read("events")
    if replay.source == DEAD_LETTERS:
        rows = deaths(log).withColumn("priority", F.lit(None).cast("long")).select(*_COLUMNS, *_ABOUT_DEATHS)
    else:
        rows = log.where(F.col("kind").isin("publish", "fast_pop")).select(*_COLUMNS)
    rows = rows.where("body is not null").withColumn("text", F.col("body").cast("string"))
    if replay.where is None:
        return rows
    try:
        return rows.where(replay.where)
    except PySparkException as error:
        columns = ", ".join(rows.columns)
        raise BadRequest(
            f"--where is not understood: {sentence_of(error)}\nThere are {columns}.", key="where"
        ) from None


def planned(rows: DataFrame, replay: Replay) -> Replayed:
    """Return what would be sent."""
    counts = rows.groupBy("channel_type", "channel", F.coalesce("tags", F.array()).alias("tags")).count().collect()
    targets: Counter[str] = Counter()
    passed_over = 0
    for row in counts:
        name = _target_name(row.asDict(), replay)
        if name is None:
            passed_over += row["count"]
        else:
            targets[name] += row["count"]
    return Replayed(dict(targets), passed_over)


async def send(url: str, rows: DataFrame, replay: Replay, total: int, progress: Progress) -> int:
    """Send the messages in the order of their publishes; returns how many when all are on the broker's disk."""
    run = uuid.uuid4().hex
    messages = (row.asDict() for row in rows.orderBy("shard", "sequence").toLocalIterator())
    wanted = (row for row in messages if _target_name(row, replay) is not None)
    at_once = _AT_ONCE if replay.rate is None else max(1, min(_AT_ONCE, int(replay.rate / _PARTS_OF_A_SECOND)))
    sent, started = 0, monotonic()
    async with connect(url) as broker:
        for part in _parts(wanted, at_once):
            await asyncio.gather(*(_sent(broker, row, replay, run) for row in part))
            sent += len(part)
            progress(sent, total)
            if replay.rate is not None:
                await asyncio.sleep(started + sent / replay.rate - monotonic())
    return sent


async def _sent(broker: Client, row: dict[str, Any], replay: Replay, run: str) -> None:
    """Send a message: once, also if the connection is lost before its confirmation has come."""
    given: dict[str, Any] = {
        "headers": row["headers"],
        "dedup_id": f"{run}-{row['shard']}-{row['sequence']}",
    }
    if row["priority"] is not None:
        given["priority"] = row["priority"]
    if replay.target is None and row["channel_type"] == "topic":
        await broker.publish(row["channel"], bytes(row["body"]), **given)
        return
    tags = row["tags"] if replay.target is None else []
    await broker.enqueue(
        replay.target or row["channel"], bytes(row["body"]), tags=tags or [], group=row["group"], **given
    )


def _target_name(row: dict[str, Any], replay: Replay) -> str | None:
    """Return where a message goes; a dead letter of one subscriber goes nowhere, since its topic has others."""
    if replay.target is not None:
        return replay.target
    if row["channel_type"] == "topic":
        return None if replay.source == DEAD_LETTERS else f"topic {row['channel']}"
    return f"{row['channel']}{{{','.join(row['tags'])}}}" if row["tags"] else row["channel"]


def _parts(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while part := list(islice(rows, size)):
        yield part
