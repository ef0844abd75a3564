"""The columns of the change log as Spark sees it.

A row of `EVENTS` is one record of the change log. What a record does not tell is null.

    shard, position   name the row; positions count up within a shard, with gaps
    kind              the name of its `Kind` in lower case: publish, assign, finish, fail, release, drop, pop, …
    time              when it happened
    channel_type      "queue" or "topic"
    channel, tags     the name of the channel; a queue's tags, sorted
    subscriber        whose cursor it is, on a topic: the name of a durable subscriber, else its number as a text
    sequence          of the message that the record is about; for a publish its own position, for a pass the first one
    client            id of the client that caused it, in hex; null for the broker itself
    attempt           of an assignment and of what came of it
    message_id        the id that the queue gave the message
    priority          of a publish
    size              bytes of body and headers, of a publish and of what settles a message
    due               when a published message may be handed out, or a failed one again
    headers, key, group, dedup_id, expires_at, replaces, origin, body
                      of a publish; `replaces` is the sequence of the message whose key it took,
                      `origin` tells in JSON where a dead letter or redriven message comes from
    reason, moved_to  why it failed or was dropped, and the sequence of the dead letter that it became
    late              whether it was finished after its lease had ended
    lease_seconds     of an assignment, where it is not the heartbeat_timeout of the queue
    last_sequence     of a pass: the last message that went to a passing subscriber
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("shard", IntegerType()),
    ("position", LongType()),
    ("kind", StringType()),
    ("time", TimestampType()),
    ("channel_type", StringType()),
    ("channel", StringType()),
    ("tags", ArrayType(StringType())),
    ("subscriber", StringType()),
    ("sequence", LongType()),
    ("client", StringType()),
    ("attempt", IntegerType()),
    ("message_id", LongType()),
    ("priority", LongType()),
    ("size", LongType()),
    ("headers", MapType(StringType(), StringType())),
    ("key", StringType()),
    ("group", StringType()),
    ("dedup_id", StringType()),
    ("due", TimestampType()),
    ("expires_at", TimestampType()),
    ("reason", StringType()),
    ("moved_to", LongType()),
    ("replaces", LongType()),
    ("late", BooleanType()),
    ("lease_seconds", DoubleType()),
    ("origin", StringType()),
    ("last_sequence", LongType()),
    ("body", BinaryType()),
)

#: The change log as it is.
EVENTS = StructType([StructField(name, kind) for name, kind in _COLUMNS])
