"""`penstock pipeline replay`: which messages of the lake are meant, chosen by SQL, and where they would go.

Dead letters are those that still lie in their queue as far as the lake knows; the broker has the last word on it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.model.errors import BadRequest
from penstock.pipeline.jobs.session import sentence_of
from penstock.pipeline.tables.dead_letters import deaths
from penstock.pipeline.tables.lake import Lake

MESSAGES, DEAD_LETTERS = "messages", "dead_letters"
#: Characters of an example that a terminal has room for.
_EXAMPLE_CHARACTERS = 100

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
_ABOUT_DEATHS = ("subscriber", "reason", "signature", "attempts", "moved_to", "grave", "grave_tags")


@dataclass(slots=True, frozen=True)
class Replay:
    """Which messages go where. `target`: a queue for all of them; None: each to where it was.

    `keep`: whether dead letters stay in their queues, and copies of all of them are sent, also of those taken from there.
    """

    source: str
    where: str | None = None
    target: str | None = None
    rate: float | None = None
    keep: bool = False

    @property
    def moves(self) -> bool:
        """Whether messages are taken from where they lie."""
        return self.source == DEAD_LETTERS and not self.keep


class Target(NamedTuple):
    """A queue or topic that messages are sent to."""

    type: str
    name: str
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.type == "topic":
            return f"topic {self.name}"
        return f"{self.name}{{{','.join(self.tags)}}}" if self.tags else self.name


@dataclass(slots=True, frozen=True)
class Share:
    """Messages that go to one place; dead letters by their signature. `target` is None if they can go nowhere."""

    target: Target | None
    signature: str | None
    count: int
    example: str


@dataclass(slots=True, frozen=True)
class Plan:
    """What would be sent."""

    shares: list[Share]

    @property
    def targets(self) -> dict[str, list[Share]]:
        """The shares of each place that messages go to, the largest first."""
        names = sorted({str(share.target) for share in self.shares if share.target is not None})
        return {name: [share for share in self.shares if str(share.target) == name] for name in names}

    @property
    def total(self) -> int:
        """How many would be sent."""
        return sum(share.count for share in self.shares if share.target is not None)

    @property
    def passed_over(self) -> int:
        """How many can go nowhere: dead letters of topics."""
        return sum(share.count for share in self.shares if share.target is None)


def chosen(lake: Lake, replay: Replay) -> DataFrame:
    """Return the messages that are meant: the columns to choose by, and the body, also as `text`; they stay the same."""
    if replay.where is None:
        return lake.held(lambda: _told(lake, replay))
    try:
        return lake.held(lambda: _told(lake, replay).where(replay.where or ""))
    except PySparkException as error:
        names = ", ".join(_told(lake, replay).columns)
        raise BadRequest(f"--where is not understood: {sentence_of(error)}\nThere are {names}.", key="where") from None


def _told(lake: Lake, replay: Replay) -> DataFrame:
    rows = _dead_letters(lake, replay) if replay.source == DEAD_LETTERS else _messages(lake)
    return rows.where("body is not null").withColumn("text", F.col("body").cast("string"))


def planned(rows: DataFrame, replay: Replay) -> Plan:
    """Return what would be sent."""
    is_death = "signature" in rows.columns
    shown = F.struct("sequence", F.date_format("time", "yyyy-MM-dd HH:mm:ss").alias("time"), _excerpt().alias("text"))
    kinds = rows.groupBy(
        "channel_type",
        "channel",
        F.coalesce("tags", F.array()).alias("tags"),
        (F.col("signature") if is_death else F.lit(None).cast("string")).alias("signature"),
    )
    found = kinds.agg(F.count("*").alias("number"), F.max_by(shown, "sequence").alias("example")).collect()
    shares = [
        Share(target_of(row.asDict(), replay), row["signature"], row["number"], _example(row["example"]))
        for row in found
    ]
    return Plan(sorted(shares, key=lambda share: (-share.count, share.signature or "")))


def target_of(row: dict[str, Any], replay: Replay) -> Target | None:
    """Return where a message goes; a dead letter of one subscriber goes nowhere, since its topic has others."""
    if replay.target is not None:
        return Target("queue", replay.target)
    if row["channel_type"] == "topic":
        return None if replay.source == DEAD_LETTERS else Target("topic", row["channel"])
    return Target("queue", row["channel"], tuple(row["tags"] or ()))


def _messages(lake: Lake) -> DataFrame:
    """Return what clients have published: what died or was redriven was published again by the broker, as a copy."""
    log = lake.read("events")
    copies = log.where("kind = 'drop'").select("shard", F.col("moved_to").alias("sequence"))
    return (
        log.where(F.col("kind").isin("publish", "fast_pop"))
        .join(copies, ["shard", "sequence"], "left_anti")
        .select(*_COLUMNS)
    )


def _dead_letters(lake: Lake, replay: Replay) -> DataFrame:
    """Return what died, with key and group that it had in life."""
    messages = lake.read("messages").where("subscriber is null")
    lived = messages.select("shard", "sequence", "key", "group")
    dead = deaths(lake.read("events"), lake.last.signature_headers).drop("key", "group")
    if replay.moves:
        over = messages.where("outcome is not null").select("shard", F.col("sequence").alias("moved_to"))
        dead = dead.join(over, ["shard", "moved_to"], "left_anti")
    return dead.join(lived, ["shard", "sequence"], "left").select(*_COLUMNS, *_ABOUT_DEATHS)


def _excerpt() -> Any:
    return F.substring("text", 1, _EXAMPLE_CHARACTERS)


def _example(row: Any) -> str:
    """Return an example in a line, without what a terminal would obey to."""
    text = "".join(one if one.isprintable() else " " for one in row["text"])
    return f"message {row['sequence']} of {row['time']}: {text}"
