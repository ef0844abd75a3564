"""The records of the change log: every publish, assignment and outcome, and every change of what exists.

A record is a plain tuple, because the hot path makes three of them a message:

    (kind, cursor, time, subject, client, number, attributes, body)

    kind        one of `Kind`
    cursor      number of the queue, topic or subscriber that it concerns; 0 when it concerns none
    time        seconds since the epoch
    subject     the sequence of the message that it is about (for a publish its own position), else as `Kind` says
    client      number of the client that caused it; 0 is the broker itself
    number      as `Kind` says; below 2**64
    attributes  dict of `Attribute` to plain values (str, bytes, int, float, bool, list, dict), or None
    body        the body of a published message, else b""

Each record has a position, which counts up by one from record to record, except for the gap after an unclean stop.
A message's sequence is the position of its publish, so one number finds the message in the log for as long as the log has it.
"""

from enum import IntEnum
from typing import Any, TypeAlias

Attributes: TypeAlias = dict[int, Any] | None
Record: TypeAlias = tuple[int, int, float, int, int, int, Attributes, bytes]

NUMBER_MAX = 2**64 - 1


class Kind(IntEnum):
    """What a record tells. The values stand in journals: never change one, never use one again."""

    #: A message was accepted. number = priority.
    PUBLISH = 1
    #: A message was given to a client under a lease. number = attempt | id << 32.
    ASSIGN = 2
    #: A client finished a message. number = attempt | size << 32, where size is that of its body and headers.
    FINISH = 3
    #: A counted failure that will be retried. number = attempt that failed.
    FAIL = 4
    #: A message came back without counting. number = attempt.
    RELEASE = 5
    #: The end without success. number = attempt | size << 32; REASON says why, MOVED is its sequence as a dead letter.
    DROP = 6
    #: Given to a client and settled at once. number = attempt | size << 32.
    POP = 7
    #: Published and popped before it was stored: a PUBLISH and a POP in one. number = priority; CONSUMER popped it.
    FAST_POP = 8
    #: A passing subscriber was given a stretch of its topic, settled at once. subject = first, number = last sequence.
    PASS = 9

    #: A queue or topic was made. cursor = its number.
    CREATE = 16
    #: Settings of a channel changed.
    ALTER = 17
    #: A channel was deleted with all that waited in it.
    DELETE = 18
    #: All that waited in a channel was dropped. number = how many.
    PURGE = 19
    #: A subscriber of a topic was made. cursor = its own number, number = its topic's, subject = first sequence it gets.
    #: number = 0: a durable subscription to a PATTERN, which makes a subscriber with each topic that fits.
    SUBSCRIBER = 20
    #: A subscriber was removed. cursor = its number. With REASON: what it had waiting goes to the dead letters first.
    UNSUBSCRIBER = 21

    #: A client was first heard of. client = its number.
    CLIENT = 24
    #: A client is gone for good. client = its number.
    CLIENT_GONE = 25

    #: Positions up to subject (exclusive) are reserved: after an unclean stop counting goes on there.
    RESERVE = 28

    #: A reader of the change log was made or moved. subject = position of the next record that it wants.
    READER = 32
    #: A reader was removed.
    READER_GONE = 33

    #: A batch of a query is published from now on, part by part. number = batch, subject = its rows; NAME = query.
    WRITE = 36
    #: Rows of it were published, with this record. subject = how many so far, number = batch; NAME = query.
    WRITTEN = 37


class Attribute(IntEnum):
    """Keys of a record's attributes. The values stand in journals: never change one, never use one again."""

    HEADERS = 1  # dict[str, str]
    KEY = 2  # str
    GROUP = 3  # str
    DEDUP_ID = 4  # str
    DUE = 5  # float: not handed out before this time
    EXPIRES_AT = 6  # float
    NOTIFY = 7  # int: bit set of Stage
    LABEL = 8  # int: what the publisher calls it
    PLACE = 9  # int: sequence whose place in the order it takes
    REPLACES = 10  # int: sequence of the message whose key it took
    TIMEOUT = 11  # float: seconds of the lease
    REASON = 12  # str
    MOVED = 13  # int: sequence of the dead letter it became
    CONSUMER = 14  # int: client number
    LATE = 15  # bool
    ID = 16  # int: message id that its queue gave, or bytes: a client's id
    NAME = 17  # str
    TAGS = 18  # list[str], sorted
    TYPE = 19  # str: "queue" | "topic"
    SETTINGS = 20  # dict[str, value]
    DURABLE = 21  # bool
    USER = 22  # str
    RETURNS = 23  # bool: the client can come back after a restart
    RESUME_TIMEOUT = 24  # float
    ORIGIN = 25  # dict: where a dead letter or redriven message comes from
    PATTERN = 26  # str: topics that a subscription takes
    STAGES = 27  # list[str]: what holds the rows of a batch
