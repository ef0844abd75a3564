"""The table `messages`: one row per message and cursor, with what was published and what came of it.

New records are folded into the rows that are there already, so a message settled a day after it was published becomes
right in the day of its publish. `subscriber` is null on a queue, and for a message of a topic that nobody was given yet.

A *step* is a record as one cursor's message sees it. Some records are a step of many messages: a pass, a purge, the end
of a channel or of a subscriber. A *part* is what a step, or a row that is there already, contributes to the row to be.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.events import day_of, folder_of
from penstock.pipeline.tables.schemas import MESSAGES

KEY = ("shard", "sequence", "subscriber")
CHANNEL = ("channel_type", "channel", "tags")
#: Records about one message.
SINGLE = ("publish", "assign", "finish", "fail", "release", "drop", "pop", "fast_pop")
#: Records about all messages of a channel or subscriber that are not settled, and the reason that they give.
ENDINGS = {"purge": "purged", "delete": "deleted", "unsubscriber": "unsubscribed"}

_PUBLISHED = ("publish", "fast_pop")
_ASSIGNED = ("assign", "pop", "fast_pop", "pass")
_FINISHED = ("finish", "pop", "fast_pop", "pass")
_SETTLED = (*_FINISHED, "drop", *ENDINGS, "settled")
#: What ends the work on a message that is assigned.
_WORKED = ("finish", "fail", "release", "drop", "delete", "unsubscriber")
#: A row that is there already comes in as a step of one of these kinds, before all new ones.
_WAITING, _HELD, _DONE = _KNOWN = ("waiting", "held", "settled")

#: So many messages at most are compared with so many passes of each subscriber.
_SPAN = 256

#: Columns of the row that the publish fills, and of the record that it comes from.
_PUBLISH = {
    "published_at": "time",
    "publisher": "client",
    **{name: name for name in ("priority", "size", "headers", "key", "group", "dedup_id", "due", "expires_at")},
}


def messages(log: DataFrame, known: DataFrame) -> DataFrame:
    """Return the rows of `known`, and of all messages that the log speaks of, as they are after it.

    `known` has the rows of every message that the log speaks of as they were before it, and may have more.
    """
    parts = _parts_of_steps(_ordered(_steps(log, known))).unionByName(_parts_of_rows(known))
    return _rows(_with_publish(_folded(parts)))


# Steps.


def _steps(log: DataFrame, known: DataFrame) -> DataFrame:
    singles = log.where(F.col("kind").isin(*SINGLE)).where("sequence is not null").drop("day", "folder", "body")
    before = _steps_before(known)
    steps = singles.unionByName(before, allowMissingColumns=True)
    steps = steps.unionByName(_passes(log, steps), allowMissingColumns=True)
    return steps.unionByName(_endings(log, steps), allowMissingColumns=True)


def _steps_before(known: DataFrame) -> DataFrame:
    """Return a step for each row that is there already: where it stands."""
    kind = F.when(F.col("outcome").isNotNull(), _DONE).when(F.col("assigned_at").isNotNull(), _HELD).otherwise(_WAITING)
    return known.select(
        *KEY, *CHANNEL, kind.alias("kind"), F.col("last_position").alias("position"), F.col("assigned_at").alias("time")
    )


def _passes(log: DataFrame, steps: DataFrame) -> DataFrame:
    """Return a step for each message of the stretches that passing subscribers were given."""
    last = F.coalesce("last_sequence", "sequence")
    stretches = log.where("kind = 'pass'").select(
        F.col("shard").alias("of_shard"),
        F.col("channel").alias("of_channel"),
        F.col("sequence").alias("first"),
        last.alias("last"),
        F.explode(F.sequence(_span_of(F.col("sequence")), _span_of(last))).alias("span"),
        F.col("subscriber").alias("of_subscriber"),
        *("kind", "position", "time", "client"),
    )
    passed = steps.where("channel_type = 'topic'").select("shard", "sequence", *CHANNEL).distinct()
    same = (
        (F.col("of_shard") == F.col("shard"))
        & (F.col("of_channel") == F.col("channel"))
        & (F.col("span") == _span_of(F.col("sequence")))
    )
    joined = passed.join(stretches, same & F.col("sequence").between(F.col("first"), F.col("last")))
    return joined.withColumn("subscriber", F.col("of_subscriber")).drop(
        "of_shard", "of_channel", "first", "last", "span", "of_subscriber"
    )


def _span_of(sequence: Column) -> Column:
    """Return in which span of sequences one is: messages and passes of a span meet, instead of all of a topic."""
    return F.floor(sequence / _SPAN)


def _endings(log: DataFrame, steps: DataFrame) -> DataFrame:
    """Return a step for each message that may have ended with its channel, its subscriber, or all that waited."""
    # A subscriber that is removed for a reason leaves dead letters, and these have records of their own.
    endings = log.where(F.col("kind").isin(*ENDINGS) & ((F.col("kind") != "unsubscriber") | F.col("reason").isNull()))
    reason = F.create_map(*(F.lit(text) for pair in ENDINGS.items() for text in pair))[F.col("kind")]
    records = endings.select(
        *(F.col(name).alias(f"of_{name}") for name in ("shard", *CHANNEL, "subscriber")),
        *("kind", "position", "time", reason.alias("reason")),
    )
    cursors = steps.select(*KEY, *CHANNEL).distinct()
    same = (
        (F.col("of_shard") == F.col("shard"))
        & (F.col("of_channel") == F.col("channel"))
        & (F.col("of_channel_type") == F.col("channel_type"))
        & (F.coalesce("of_tags", F.array()) == F.coalesce("tags", F.array()))
        & (F.col("sequence") < F.col("position"))
        & ((F.col("kind") != "unsubscriber") | (F.col("of_subscriber") == F.col("subscriber")))
    )
    return cursors.join(records, same).drop(*(f"of_{name}" for name in ("shard", *CHANNEL, "subscriber")))


def _ordered(steps: DataFrame) -> DataFrame:
    """Tell each step what was before it, and leave out endings that did not concern the message any more.

    A queue that is deleted may be made and deleted again: of several endings the first one is that of the message.
    """
    earlier = Window.partitionBy(*KEY).orderBy("position").rowsBetween(Window.unboundedPreceding, -1)
    state = F.when(~F.col("kind").isin(*ENDINGS), F.struct("kind", "time"))
    told = steps.withColumn("before", F.last(state, ignorenulls=True).over(earlier))
    is_over = F.col("before.kind").isin(*_SETTLED)
    is_held = (F.col("kind") == "purge") & F.col("before.kind").isin("assign", _HELD)
    is_ending = F.col("kind").isin(*ENDINGS)
    idle = is_ending & F.coalesce(is_over | is_held, F.lit(False))  # a column
    left = told.where(~idle & ~F.col("kind").isin(*_KNOWN))
    return left.withColumn("ended", F.count_if(is_ending).over(earlier)).where(~is_ending | (F.col("ended") == 0))


# Parts.


def _parts_of_steps(steps: DataFrame) -> DataFrame:
    """Return what each step contributes."""
    kind, position, time = F.col("kind"), F.col("position"), F.col("time")
    published = F.struct(*(F.col(column).alias(name) for name, column in _PUBLISH.items()))
    worked = kind.isin(*_WORKED) & F.col("before.kind").isin("assign", _HELD)
    settlement = F.struct(
        position.alias("position"),
        time.alias("at"),
        F.when(kind.isin(*_FINISHED), "finish").otherwise("drop").alias("outcome"),
        F.col("reason").alias("reason"),
        F.coalesce("late", F.lit(False)).alias("late"),  # a column
        F.col("moved_to").alias("moved_to"),
    )
    return steps.select(
        *KEY,
        *CHANNEL,
        F.when(kind.isin(*_PUBLISHED), published).alias("published"),
        F.when(kind.isin(*_ASSIGNED), time).alias("first_assigned_at"),
        F.when(worked, _seconds(time) - _seconds(F.col("before.time"))).alias("work_seconds"),
        F.when(kind.isin("pop", "fast_pop", "pass"), 1).otherwise(F.col("attempt")).alias("attempts"),
        (kind == "fail").cast("int").alias("failures"),
        (kind == "release").cast("int").alias("releases"),
        F.when(kind.isin("fail", "drop"), _at("reason")).alias("failure"),
        F.when(kind.isin("assign", "pop", "pass"), _at("client")).alias("given"),
        F.struct(position.alias("position"), F.when(kind == "assign", time).alias("value")).alias("held"),
        F.when(kind.isin(*_SETTLED), settlement).alias("settlement"),
        position.alias("last_position"),
        day_of(time).alias("day"),
    )


def _parts_of_rows(known: DataFrame) -> DataFrame:
    """Return what each row that is there already contributes: all that it has."""
    position = F.col("last_position").alias("position")
    settlement = F.struct(position, F.col("settled_at").alias("at"), "outcome", "reason", "late", "moved_to")
    return known.select(
        *KEY,
        *CHANNEL,
        F.when(F.col("published_at").isNotNull(), F.struct(*_PUBLISH)).alias("published"),
        "first_assigned_at",
        "work_seconds",
        "attempts",
        "failures",
        "releases",
        F.when(F.col("last_failure").isNotNull(), F.struct(position, F.col("last_failure").alias("value"))).alias(
            "failure"
        ),
        F.when(F.col("consumer").isNotNull(), F.struct(position, F.col("consumer").alias("value"))).alias("given"),
        F.struct(position, F.col("assigned_at").alias("value")).alias("held"),
        F.when(F.col("outcome").isNotNull(), settlement).alias("settlement"),
        "last_position",
        "day",
    )


def _folded(parts: DataFrame) -> DataFrame:
    """Fold the parts of each row into one."""
    firsts = [F.first(name, ignorenulls=True).alias(name) for name in (*CHANNEL, "published")]
    leasts = [F.min(name).alias(name) for name in ("first_assigned_at", "settlement", "day")]
    sums = [F.sum(name).alias(name) for name in ("work_seconds", "failures", "releases")]
    mosts = [F.max(name).alias(name) for name in ("attempts", "failure", "given", "held", "last_position")]
    return parts.groupBy(*KEY).agg(*firsts, *leasts, *sums, *mosts)


# Rows.


def _with_publish(folded: DataFrame) -> DataFrame:
    """Give every cursor of a topic's message its publish, and leave out the row without a cursor where there is one."""
    message = Window.partitionBy("shard", "sequence")
    told = folded.withColumns(
        {
            "published": F.first("published", ignorenulls=True).over(message),
            "cursors": F.count("subscriber").over(message),
        }
    )
    return told.where("subscriber is not null or cursors = 0")


def _rows(folded: DataFrame) -> DataFrame:
    available_at = F.greatest("published.published_at", "published.due")  # it ignores nulls
    waited = _seconds(F.col("first_assigned_at")) - _seconds(available_at)
    columns = {
        **{name: F.col(f"published.{name}") for name in _PUBLISH},
        "wait_seconds": F.when(waited.isNotNull(), F.greatest(waited, F.lit(0.0))),
        "last_failure": F.col("failure.value"),
        "consumer": F.col("given.value"),
        "assigned_at": F.when(F.col("settlement").isNull(), F.col("held.value")),
        "settled_at": F.col("settlement.at"),
        **{name: F.col(f"settlement.{name}") for name in ("outcome", "reason", "late", "moved_to")},
        "day": F.coalesce(day_of(F.col("published.published_at")), F.col("day")),
        "folder": folder_of(F.col("channel")),
    }
    rows = folded.withColumns(columns)
    return rows.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in MESSAGES))


def _at(column: str) -> Column:
    return F.struct(F.col("position").alias("position"), F.col(column).alias("value"))


def _seconds(time: Column) -> Column:
    return F.unix_micros(time) / 1e6
