"""What a publisher gets for a message."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """The name of a message, and whether it was known by its dedup id already."""

    shard: int
    sequence: int
    duplicate: bool = False
