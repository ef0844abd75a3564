"""Destinations of STOMP and the channels that they mean."""

from typing import NamedTuple

from penstock.model.errors import BadRequest
from penstock.model.names import QueueKey, checked_name

QUEUE, TOPIC, EXISTING, TEMPORARY = "queue", "topic", "existing queue", "temporary queue"
_PREFIXES = {"/queue/": QUEUE, "/topic/": TOPIC, "/amq/queue/": EXISTING, "/temp-queue/": TEMPORARY}


class Destination(NamedTuple):
    """What a destination means."""

    kind: str
    name: str

    @property
    def is_topic(self) -> bool:
        """Whether it is a topic, or a pattern of topics."""
        return self.kind == TOPIC


class Target(NamedTuple):
    """Where a SEND goes: a queue without tags, or a topic."""

    queue: QueueKey | None
    topic: str
    is_existing: bool


def parsed(text: str) -> Destination:
    """Return what a destination means."""
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return Destination(kind, checked_name(text[len(prefix) :], "destination"))
    raise BadRequest(
        f"the destination {text!r} is none: it must begin with /queue/, /topic/ or /temp-queue/", key="destination"
    )
