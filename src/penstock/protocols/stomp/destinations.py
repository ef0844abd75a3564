"""Destinations of STOMP and the channels that they mean."""

from typing import NamedTuple

from penstock.model.errors import BadRequest
from penstock.model.names import checked_name

_PREFIXES = {"/queue/": "queue", "/topic/": "topic", "/amq/queue/": "existing queue", "/temp-queue/": "temporary queue"}


class Destination(NamedTuple):
    """What a destination means."""

    kind: str  # queue, topic, existing queue, temporary queue
    name: str

    @property
    def is_topic(self) -> bool:
        """Whether it is a topic, or a pattern of topics."""
        return self.kind == "topic"


def parsed(text: str) -> Destination:
    """Return what a destination means."""
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return Destination(kind, checked_name(text[len(prefix) :], "destination"))
    raise BadRequest(
        f"the destination {text!r} is none: it must begin with /queue/, /topic/ or /temp-queue/", key="destination"
    )


def destination_of(queue: str | None, topic: str | None) -> str:
    """Return the destination that a message of this channel has."""
    return f"/queue/{queue}" if queue is not None else f"/topic/{topic}"
