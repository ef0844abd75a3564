"""Rows that are on their way into the broker, unseen until all of their batch are published together."""

import msgspec

from penstock.model.publication import PRIORITY_DEFAULT


class StagedRow(msgspec.Struct, array_like=True):
    """A message to be published: to a queue, or to a topic."""

    body: bytes
    queue: str | None = None
    topic: str | None = None
    tags: list[str] | None = None
    priority: int = PRIORITY_DEFAULT
    headers: dict[str, str] | None = None
    delay: float | None = None
    ttl: float | None = None
    key: str | None = None
    group: str | None = None
    dedup_id: str | None = None
