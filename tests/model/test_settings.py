"""Settings: their defaults, what they take, and the delays that they come to."""

import math
from dataclasses import fields
from typing import Any

import pytest

from penstock.model.errors import BadRequest
from penstock.model.limits import SECONDS_MAX
from penstock.model.settings import (
    CHECKS,
    QueueSettings,
    TopicSettings,
    checked_count,
    checked_flag,
    checked_seconds,
    checked_timeout,
)


def test_defaults_of_queues() -> None:
    """A queue has the defaults that are promised, and a dead letter queue of its name."""
    assert QueueSettings.defaults("q").as_dict() == {
        "retry_limit": 5,
        "heartbeat_timeout": 300.0,
        "retry_delay": 0.0,
        "retry_backoff": 1.0,
        "retry_delay_max": 3600.0,
        "dead_letter": "DLQ.q",
        "max_length": None,
        "max_bytes": None,
        "overflow": "reject",
        "ttl": None,
        "dedup_window": 120.0,
        "paused": False,
    }


def test_defaults_of_dead_letter_queues() -> None:
    """A dead letter queue has no retry limit and no dead letter queue."""
    settings = QueueSettings.defaults("DLQ.q")

    assert (settings.retry_limit, settings.dead_letter) == (None, None)


def test_every_setting_has_a_check() -> None:
    """No setting was forgotten, and every default passes its own check."""
    for settings in (QueueSettings(), TopicSettings()):
        assert {field.name for field in fields(settings)} <= CHECKS.keys()
        assert settings.changed(settings.as_dict()) == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_limit", 0),
        ("retry_limit", 1.5),
        ("retry_limit", True),
        ("heartbeat_timeout", 0),
        ("heartbeat_timeout", "5"),
        ("retry_delay", -1),
        ("retry_delay", math.nan),
        ("retry_delay", math.inf),
        ("retry_delay", 10**400),
        ("retry_backoff", 0.5),
        ("max_length", 0),
        ("overflow", "explode"),
        ("overflow", []),
        ("ttl", 0),
        ("dead_letter", ""),
        ("paused", 1),
        ("heartbeat_timeout", SECONDS_MAX * 2),
        ("max_failures", 1),
    ],
)
def test_what_is_refused(name: str, value: Any) -> None:
    """A value of a wrong type or out of range, or a setting that there is not, is refused by name."""
    with pytest.raises(BadRequest) as caught:
        QueueSettings().changed({name: value})
    assert caught.value.key == name


@pytest.mark.parametrize(
    ("name", "value"), [("retry_limit", None), ("dead_letter", None), ("ttl", 1), ("dedup_window", 0), ("paused", True)]
)
def test_what_is_taken(name: str, value: Any) -> None:
    """Nothing, where that means unlimited, and whole numbers of seconds are fine."""
    assert getattr(QueueSettings().changed({name: value}), name) == value


def test_several_are_changed_at_once_or_not_at_all() -> None:
    """One wrong value refuses the others."""
    with pytest.raises(BadRequest):
        TopicSettings().changed({"retain_count": 0, "retain_age": -1})
    assert TopicSettings().changed({"retain_count": 0, "retain_age": 1}).retain_age == 1.0


@pytest.mark.parametrize(
    ("delay", "backoff", "most", "delays"),
    [
        (0.0, 2.0, 60.0, [0.0, 0.0, 0.0]),
        (5.0, 1.0, 60.0, [5.0, 5.0, 5.0]),
        (5.0, 3.0, 20.0, [5.0, 15.0, 20.0]),
        (30.0, 1.0, 20.0, [20.0, 20.0, 20.0]),
    ],
)
def test_retries_back_off(delay: float, backoff: float, most: float, delays: list[float]) -> None:
    """The delay grows by the factor with each failure, up to a most."""
    settings = QueueSettings(retry_delay=delay, retry_backoff=backoff, retry_delay_max=most)

    assert [settings.delay_after(failures) for failures in (1, 2, 3)] == delays


def test_very_many_failures() -> None:
    """A factor beyond all numbers is the most."""
    assert QueueSettings(retry_delay=1.0, retry_backoff=10.0).delay_after(10**6) == 3600.0


def test_numbers() -> None:
    """Counts are whole and within bounds, flags are true or false, timeouts more than nothing."""
    assert (checked_count(3, "n"), checked_flag(False, "f"), checked_seconds(0, "s"), checked_timeout(1, "t")) == (
        3,
        False,
        0.0,
        1.0,
    )
    for check, wrong in ((checked_count, 2**63), (checked_flag, None), (checked_seconds, True), (checked_timeout, 0.0)):
        with pytest.raises(BadRequest):
            check(wrong, "x")
