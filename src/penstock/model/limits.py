"""Every limit of the broker's core, with its default and its reason."""

from dataclasses import dataclass

UINT32_MAX = 2**32 - 1
#: Longer waits are mistakes of unit (milliseconds for seconds), and would outlive any broker.
SECONDS_MAX = 100 * 366 * 86400.0


@dataclass(slots=True, frozen=True)
class Limits:
    """Limits that an operator may set."""

    #: A body travels through memory several times; larger things belong in a file store, with their name in the message.
    body_bytes_max: int = 16 * 2**20
    #: All of a message's headers together; they stay in memory longer than bodies do.
    header_bytes_max: int = 64 * 2**10
    headers_max: int = 256
    #: Queues and topics; each costs about 3 KB.
    channels_max: int = 100_000
    #: Subscribers of all topics together.
    subscribers_max: int = 100_000
    #: Messages that one consumer may hold unsettled.
    credit_max: int = 65_535
    #: Bodies that one consumer may hold unsettled, which stay in memory; it gets one message whatever its size.
    credit_bytes_max: int = 64 * 2**20
    #: Messages and settlements of one transaction, which stay in memory until it is written as one batch.
    transaction_operations_max: int = 10_000
    transaction_bytes_max: int = 64 * 2**20
    #: Dedup ids that one channel remembers; the oldest are forgotten first, each costs about 200 B.
    dedup_ids_max: int = 1_000_000
    #: Notices kept for a client that is away.
    missed_notices_max: int = 10_000
    #: Seconds that a client may ask to be kept while it is away.
    resume_timeout_max: float = 86400.0
    readers_max: int = 1_000
    #: What a failure's reason may say; longer ones are cut.
    reason_characters_max: int = 1_000
