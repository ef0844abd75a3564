"""The columns of the tables; docs/pipeline.md explains each."""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipeline import schemas

INT, LONG, DOUBLE, TEXT, TIME = IntegerType(), LongType(), DoubleType(), StringType(), TimestampType()
TAGS, HEADERS = ArrayType(TEXT), MapType(TEXT, TEXT)

#: Every table lies in directories by day (of UTC) and by channel.
DAY, FOLDER = "day", "folder"
_PLACE: tuple[tuple[str, DataType], ...] = ((DAY, DateType()), (FOLDER, TEXT))
PLACE = [name for name, _ in _PLACE]


def _schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in (*columns, *_PLACE)])


EVENTS = _schema(*((field.name, field.dataType) for field in schemas.EVENTS))

MESSAGES = _schema(
    ("shard", INT),
    ("sequence", LONG),
    ("subscriber", TEXT),
    ("channel_type", TEXT),
    ("channel", TEXT),
    ("tags", TAGS),
    # The publish.
    ("published_at", TIME),
    ("publisher", TEXT),
    ("priority", LONG),
    ("size", LONG),
    ("headers", HEADERS),
    ("key", TEXT),
    ("group", TEXT),
    ("dedup_id", TEXT),
    ("due", TIME),
    ("expires_at", TIME),
    # What came of it.
    ("first_assigned_at", TIME),
    ("wait_seconds", DOUBLE),
    ("work_seconds", DOUBLE),
    ("attempts", INT),
    ("failures", INT),
    ("releases", INT),
    ("last_failure", TEXT),
    ("consumer", TEXT),
    ("assigned_at", TIME),
    ("settled_at", TIME),
    ("outcome", TEXT),
    ("reason", TEXT),
    ("late", BooleanType()),
    ("moved_to", LONG),
    ("last_position", LONG),
)

_PERCENTILES = [(f"{what}_{name}", DOUBLE) for what in ("wait", "work") for name in ("p50", "p90", "p99", "max")]
QUEUE_MINUTES = _schema(
    ("minute", TIME),
    ("channel_type", TEXT),
    ("channel", TEXT),
    ("tags", TAGS),
    ("published", LONG),
    ("assigned", LONG),
    ("finished", LONG),
    ("failed", LONG),
    ("released", LONG),
    ("dropped", LONG),
    ("dead_lettered", LONG),
    *_PERCENTILES,
    ("depth", LONG),
    ("subscribers", MapType(TEXT, StructType([StructField("since", LONG), StructField("depth", LONG)]))),
)

DEAD_LETTERS = _schema(
    ("channel_type", TEXT),
    ("channel", TEXT),
    ("tags", TAGS),
    ("subscriber", TEXT),
    ("signature", TEXT),
    ("number", LONG),
    ("first_at", TIME),
    ("last_at", TIME),
    # The latest of them.
    ("reason", TEXT),
    ("shard", INT),
    ("sequence", LONG),
    ("moved_to", LONG),
    ("attempts", INT),
    ("headers", HEADERS),
    ("excerpt", TEXT),
)

TABLES = {"events": EVENTS, "messages": MESSAGES, "queue_minutes": QUEUE_MINUTES, "dead_letters": DEAD_LETTERS}
