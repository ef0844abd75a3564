"""The figures of the report, worked out by Spark: few enough to be kept in memory, however long the history."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.lake import Lake
from penstock.pipeline.tables.messages import CHANNEL
from penstock.pipeline.tables.minutes import is_dead_letter

#: Steps that a plot may have, in seconds; the first that makes few enough points is taken.
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800)
_POINTS_MAX = 120
_SHARES = [0.5, 0.9, 0.99]
_SIGNATURES_MAX = 50
_QUEUES_MAX = 25
_OF_MESSAGES = (
    *CHANNEL, "published_at", "first_assigned_at", "wait_seconds", "work_seconds", "failures", "settled_at", "outcome",
    "reason", "moved_to",
)  # fmt: skip
#: Queues and topics whose depth gets a line of its own.
DEPTHS_MAX = 4


@dataclass(slots=True, frozen=True)
class Percentiles:
    """Seconds that half, nine of ten and ninety-nine of a hundred stayed below."""

    p50: float
    p90: float
    p99: float


@dataclass(slots=True)
class Step:
    """What happened in one step of time."""

    published: int = 0
    finished: int = 0
    failed: int = 0
    dead_lettered: int = 0
    wait: Percentiles | None = None
    work: Percentiles | None = None


@dataclass(slots=True, frozen=True)
class ChannelFigures:
    """A queue or topic, from the first to the last record."""

    type: str
    name: str
    published: int
    finished: int
    failed: int
    dead_lettered: int
    unsettled: int
    wait: Percentiles | None
    work: Percentiles | None


@dataclass(slots=True, frozen=True)
class DeadLetterFigures:
    """Messages of a queue that died of the same."""

    queue: str
    signature: str
    number: int
    first_at: datetime
    last_at: datetime
    reason: str
    sequence: int
    attempts: int
    headers: dict[str, str]
    excerpt: str


@dataclass(slots=True, frozen=True)
class Figures:
    """All that the report shows. `depths`: of some queues and topics, by name, at the end of each step."""

    since: datetime
    until: datetime
    step_seconds: int
    steps: list[Step]
    depths: dict[str, list[int]]
    channels: list[ChannelFigures]
    dead_letters: list[DeadLetterFigures]
    wait: Percentiles | None
    work: Percentiles | None


@dataclass(slots=True, frozen=True)
class Axis:
    """Steps of equal length, in seconds since the epoch."""

    start: int
    step: int
    count: int

    def step_of(self, time: str) -> Column:
        """Return the number of the step that a column of times falls into."""
        return F.floor((F.unix_seconds(time) - self.start) / self.step).cast("int").alias("step")


def figures_of(lake: Lake) -> Figures | None:
    """Return the figures of a lake; None if nothing is in it."""
    log = lake.held(lambda: lake.read("events").where("channel is not null").select(*CHANNEL, "kind", "time"))
    messages = lake.held(lambda: lake.read("messages").select(*_OF_MESSAGES))
    minutes, letters = (lake.held(partial(lake.read, table)) for table in ("queue_minutes", "dead_letters"))
    first, last = log.agg(F.unix_seconds(F.min("time")), F.unix_seconds(F.max("time"))).collect()[0]
    if first is None:
        return None
    axis = _axis(first, last)
    channels, wait, work = _channels(log, messages)
    return Figures(
        since=datetime.fromtimestamp(first, UTC),
        until=datetime.fromtimestamp(last, UTC),
        step_seconds=axis.step,
        steps=_steps(axis, log, messages),
        depths=_deepest(_depths(axis, messages) | _depths_of_topics(axis, minutes)),
        channels=channels[:_QUEUES_MAX],
        dead_letters=_dead_letters(letters),
        wait=wait,
        work=work,
    )


def _axis(first: int, last: int) -> Axis:
    step = next((step for step in _STEPS if (last - first) / step < _POINTS_MAX), _STEPS[-1])
    start = first // step * step
    return Axis(start, step, (last - start) // step + 1)


def _steps(axis: Axis, log: DataFrame, messages: DataFrame) -> list[Step]:
    steps = [Step() for _ in range(axis.count)]
    counts = log.groupBy(axis.step_of("time")).agg(
        F.count_if(F.col("kind").isin("publish", "fast_pop")), F.count_if(F.col("kind") == "fail")
    )
    for step, published, failed in counts.collect():
        steps[step].published, steps[step].failed = published, failed
    settled = (
        messages.where("settled_at is not null")
        .groupBy(axis.step_of("settled_at"))
        .agg(
            F.count_if(F.col("outcome") == "finish"),
            F.count_if(is_dead_letter()),
            F.percentile("work_seconds", _SHARES),
        )
    )
    for step, finished, dead_lettered, work in settled.collect():
        steps[step].finished, steps[step].dead_lettered, steps[step].work = finished, dead_lettered, _percentiles(work)
    assigned = messages.where("first_assigned_at is not null").groupBy(axis.step_of("first_assigned_at"))
    for step, wait in assigned.agg(F.percentile("wait_seconds", _SHARES)).collect():
        steps[step].wait = _percentiles(wait)
    return steps


def _depths(axis: Axis, messages: DataFrame) -> dict[str, list[int]]:
    """Return the depths of queues."""
    known = messages.where("channel_type = 'queue' and published_at is not null").select(
        "channel", "tags", "published_at", "settled_at"
    )
    changes = known.select("channel", "tags", axis.step_of("published_at"), F.lit(1).alias("change")).unionByName(
        known.where("settled_at is not null").select(
            "channel", "tags", axis.step_of("settled_at"), F.lit(-1).alias("change")
        )
    )
    by_queue: dict[str, list[int]] = {}
    for channel, tags, step, change in changes.groupBy("channel", "tags", "step").agg(F.sum("change")).collect():
        by_queue.setdefault(_name(channel, tags), [0] * axis.count)[step] += change
    return {name: _running(changes) for name, changes in by_queue.items()}


def _depths_of_topics(axis: Axis, minutes: DataFrame) -> dict[str, list[int]]:
    """Return the depths of topics: of each step the last that is known, for there is one at the end of each busy minute."""
    known = minutes.where("channel_type = 'topic'").withColumn("end", F.expr("minute + interval 59 seconds"))
    latest = known.groupBy("channel", axis.step_of("end")).agg(F.max_by("depth", "minute"))
    depths: dict[str, list[int]] = {}
    for channel, step, depth in latest.orderBy("channel", "step").collect():
        line = depths.setdefault(f"{channel} (topic)", [0] * axis.count)
        at = min(step, axis.count - 1)
        line[at:] = [depth] * (axis.count - at)
    return depths


def _deepest(depths: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return the depths of those that became deepest."""
    names = sorted(depths, key=lambda name: -max(depths[name]))
    return {name: depths[name] for name in names[:DEPTHS_MAX]}


def _running(changes: list[int]) -> list[int]:
    depth, depths = 0, []
    for change in changes:
        depth += change
        depths.append(depth)
    return depths


def _channels(
    log: DataFrame, messages: DataFrame
) -> tuple[list[ChannelFigures], Percentiles | None, Percentiles | None]:
    """Return the channels, those first whose messages fail or wait most; then waits and work of all together."""
    tags = F.coalesce("tags", F.array()).alias("tags")
    published = log.where(F.col("kind").isin("publish", "fast_pop")).groupBy("channel_type", "channel", tags).count()
    told = messages.withColumn("tags", tags).rollup("channel_type", "channel", "tags").agg(
        F.grouping_id().alias("level"),
        F.count_if(F.col("outcome") == "finish").alias("finished"),
        F.sum("failures").alias("failed"),
        F.count_if(is_dead_letter()).alias("dead_lettered"),
        F.count_if(F.col("outcome").isNull()).alias("unsettled"),
        F.percentile("wait_seconds", _SHARES).alias("wait"),
        F.percentile("work_seconds", _SHARES).alias("work"),
    )  # fmt: skip
    numbers = {(row["channel_type"], row["channel"], tuple(row["tags"])): row["count"] for row in published.collect()}
    rows = told.where(F.col("level").isin(0, 7)).collect()
    channels = [_channel(row, numbers) for row in rows if row["level"] == 0]
    wait, work = next(((row["wait"], row["work"]) for row in rows if row["level"] != 0), (None, None))
    channels.sort(key=lambda one: (-one.dead_lettered, -one.failed, -(one.wait.p99 if one.wait else 0.0), one.name))
    return channels, _percentiles(wait), _percentiles(work)


def _channel(row: Any, published: dict[tuple[str, str, tuple[str, ...]], int]) -> ChannelFigures:
    return ChannelFigures(
        type=row["channel_type"],
        name=_name(row["channel"], row["tags"]),
        published=published.get((row["channel_type"], row["channel"], tuple(row["tags"])), 0),
        finished=row["finished"],
        failed=row["failed"] or 0,
        dead_lettered=row["dead_lettered"],
        unsettled=row["unsettled"],
        wait=_percentiles(row["wait"]),
        work=_percentiles(row["work"]),
    )


def _dead_letters(table: DataFrame) -> list[DeadLetterFigures]:
    """Return the signatures, the most frequent first."""
    groups = table.groupBy(*CHANNEL, "signature").agg(
        F.sum("number").alias("number"),
        F.unix_micros(F.min("first_at")).alias("first"),
        F.unix_micros(F.max("last_at")).alias("last"),
        F.max_by(F.struct("reason", "sequence", "attempts", "headers", "excerpt"), "last_at").alias("example"),
    )
    found = groups.orderBy(F.desc("number"), "channel", "signature").limit(_SIGNATURES_MAX).collect()
    return [
        DeadLetterFigures(
            queue=_name(row["channel"], row["tags"]),
            signature=row["signature"],
            number=row["number"],
            first_at=datetime.fromtimestamp(row["first"] / 1e6, UTC),
            last_at=datetime.fromtimestamp(row["last"] / 1e6, UTC),
            reason=row["example"]["reason"] or "",
            sequence=row["example"]["sequence"],
            attempts=row["example"]["attempts"] or 0,
            headers=row["example"]["headers"] or {},
            excerpt=row["example"]["excerpt"] or "",
        )
        for row in found
    ]


def _name(channel: str, tags: list[str] | None) -> str:
    return f"{channel}{{{','.join(tags)}}}" if tags else channel


def _percentiles(values: list[float] | None) -> Percentiles | None:
    return None if values is None or values[0] is None else Percentiles(*values)
