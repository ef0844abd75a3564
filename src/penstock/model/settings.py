"""Settings of queues and topics: their names, defaults, and what values they take."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from penstock.model.errors import BadRequest
from penstock.model.limits import SECONDS_MAX
from penstock.model.names import checked_name, dead_letter_name, is_dead_letter_name, plain_text

OVERFLOW_POLICIES = ("reject", "drop-oldest", "dead-letter-oldest")


class _Settings:
    """What both kinds of settings do; the checks of each field are in `CHECKS`."""

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return these settings with some changed, each checked."""
        known = {field.name for field in fields(self)}  # type: ignore[arg-type]  # subclasses are dataclasses
        for name in changes:
            if name not in known:
                raise BadRequest(f"there is no setting {name!r}; there are {', '.join(sorted(known))}", key=str(name))
        checked = {name: CHECKS[name](value, name) for name, value in changes.items()}
        return replace(self, **checked)  # type: ignore[type-var]  # subclasses are dataclasses

    def as_dict(self) -> dict[str, Any]:
        """Return all settings by name."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # subclasses are dataclasses


@dataclass(slots=True, frozen=True)
class QueueSettings(_Settings):
    """What can be set for a queue."""

    #: The failure with this number dead-letters the message; None: never for failing.
    retry_limit: int | None = 5
    #: Seconds of a lease, unless the consumer names its own.
    heartbeat_timeout: float = 300.0
    retry_delay: float = 0.0
    retry_backoff: float = 1.0
    retry_delay_max: float = 3600.0
    #: Queue of the same tags that takes the dead letters; None: they are dropped.
    dead_letter: str | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "reject"
    ttl: float | None = None
    dedup_window: float = 120.0
    paused: bool = False

    @classmethod
    def defaults(cls, name: str) -> Self:
        """Return what a queue of this name has when nothing is said."""
        if is_dead_letter_name(name):
            return cls(retry_limit=None)
        return cls(dead_letter=dead_letter_name(name))

    def delay_after(self, failures: int) -> float:
        """Return how long a message waits after so many failures (1 at first)."""
        if not self.retry_delay:
            return 0.0
        try:
            delay = self.retry_delay * self.retry_backoff ** (failures - 1)
        except OverflowError:
            return self.retry_delay_max
        return min(delay, self.retry_delay_max)


@dataclass(slots=True, frozen=True)
class TopicSettings(_Settings):
    """What can be set for a topic."""

    #: Seconds, bytes and number of messages that stay for subscribers who begin earlier than the end.
    retain_age: float | None = None
    retain_bytes: int | None = None
    retain_count: int | None = None
    #: Seconds until a message that a subscriber refused comes again.
    retry_delay: float = 1.0
    #: Failures of one message after which its subscriber is removed; None: never.
    max_failures: int | None = 10
    heartbeat_timeout: float = 300.0
    #: A durable subscriber that is away this long is removed.
    subscriber_expiry: float | None = None
    #: A subscriber for whom more than this waits is removed.
    subscriber_max_bytes: int | None = None
    ttl: float | None = None
    dedup_window: float = 120.0
    paused: bool = False


def checked_seconds(value: object, key: str) -> float:
    """Return a number of seconds, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{key} must be a number of seconds, not {value!r}", key=key)
    seconds = float(value) if abs(value) <= SECONDS_MAX else math.inf
    if not 0 <= seconds <= SECONDS_MAX:
        raise BadRequest(f"{key} is {value!r} seconds; it must be from 0 to {SECONDS_MAX:.0f}", key=key)
    return seconds


def checked_timeout(value: object, key: str) -> float:
    """Return a number of seconds, more than 0."""
    seconds = checked_seconds(value, key)
    if not seconds:
        raise BadRequest(f"{key} must be more than 0 seconds", key=key)
    return seconds


def checked_count(value: object, key: str, least: int = 1, most: int = 2**63 - 1) -> int:
    """Return a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{key} must be a whole number, not {value!r}", key=key)
    if not least <= value <= most:
        raise BadRequest(f"{key} is {value}; it must be from {least} to {most}", key=key)
    return int(value)


def checked_flag(value: object, key: str) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be true or false, not {value!r}", key=key)
    return value


def _checked_backoff(value: object, key: str) -> float:
    factor = checked_seconds(value, key)
    if factor < 1:
        raise BadRequest(f"{key} is {value!r}; a factor of at least 1 is needed", key=key)
    return factor


def _checked_overflow(value: object, key: str) -> str:
    if value not in OVERFLOW_POLICIES:
        raise BadRequest(f"{key} is {value!r}; it must be one of {', '.join(OVERFLOW_POLICIES)}", key=key)
    return plain_text(str(value))


def _or_none(check: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    return lambda value, key: None if value is None else check(value, key)


CHECKS: dict[str, Callable[[object, str], Any]] = {
    "retry_limit": _or_none(checked_count),
    "heartbeat_timeout": checked_timeout,
    "retry_delay": checked_seconds,
    "retry_backoff": _checked_backoff,
    "retry_delay_max": checked_seconds,
    "dead_letter": _or_none(checked_name),
    "max_length": _or_none(checked_count),
    "max_bytes": _or_none(checked_count),
    "overflow": _checked_overflow,
    "ttl": _or_none(checked_timeout),
    "dedup_window": checked_seconds,
    "paused": checked_flag,
    "retain_age": _or_none(checked_seconds),
    "retain_bytes": _or_none(lambda value, key: checked_count(value, key, 0)),
    "retain_count": _or_none(lambda value, key: checked_count(value, key, 0)),
    "max_failures": _or_none(checked_count),
    "subscriber_expiry": _or_none(checked_timeout),
    "subscriber_max_bytes": _or_none(checked_count),
}
