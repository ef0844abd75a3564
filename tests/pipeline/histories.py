"""Random histories of a broker as records of its change log, and plain Python that tells what the tables must be.

`history` plays a small broker and writes down what it does; the rest reads only what was written down.
"""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.pipeline.schemas import EVENTS

START = datetime(2026, 11, 19, 22, 50, 30, tzinfo=UTC)
LONG_NAME = "Aufträge/" + "ü" * 100
Row = dict[str, Any]


class Channel(NamedTuple):
    """A queue or topic."""

    type: str
    name: str
    tags: tuple[str, ...] = ()


QUEUES = [Channel("queue", "orders"), Channel("queue", "orders", ("eu", "fast")), Channel("queue", LONG_NAME)]
GRAVE = Channel("queue", "DLQ.orders")
TOPIC = Channel("topic", "news")
AUDIT, PASSING = "audit", "17"


class History:
    """A small broker that writes down what it does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = START
        self.records: list[Row] = []
        self.waiting: dict[tuple[int, str | None], Channel] = {}
        self.held: dict[tuple[int, str | None], Channel] = {}
        self.lapsed: dict[tuple[int, str | None], Channel] = {}
        self.attempts: dict[tuple[int, str | None], int] = defaultdict(lambda: 1)
        self.passed = 1
        #: Whether the durable subscriber is there, so that messages wait for it.
        self.has_audit = False

    def note(self, kind: str, channel: Channel | None, **columns: Any) -> int:
        """Write down a record; returns its position."""
        position = self.records[-1]["position"] + self.random.choice([1, 1, 1, 5]) if self.records else 1
        row: Row = dict.fromkeys(EVENTS.names)
        row.update(shard=0, position=position, kind=kind, time=self.now)
        if channel is not None:
            row.update(channel_type=channel.type, channel=channel.name)
            row["tags"] = list(channel.tags) if channel.type == "queue" else None
        row.update(columns)
        if kind in {"publish", "fast_pop"}:
            row["sequence"] = position
        self.records.append(row)
        return position

    def publish(self, channel: Channel, kind: str = "publish", **columns: Any) -> int:
        """Publish a message with a body of its own."""
        body = f"body {self.random.randrange(1000)}".encode()
        due = self.now + timedelta(seconds=30) if self.random.random() < 0.2 else None
        given: Row = {"client": "aa01", "priority": 4, "size": len(body), "due": due, "body": body, **columns}
        sequence = self.note(kind, channel, **given)
        if kind == "publish" and (channel is not TOPIC or self.has_audit):
            self.waiting[sequence, AUDIT if channel is TOPIC else None] = channel
        return sequence

    def step(self) -> None:
        """Let some time go by, and something happen."""
        self.now += timedelta(seconds=self.random.choice([0, 0.25, 1, 7, 40]))
        if self.random.random() < 0.02:
            self.now += timedelta(hours=13)
        action = self.random.choices(
            [self._publish, self._assign, self._settle, self._fast_pop, self._end, self._pass, self._late, self._join],
            [8, 6, 5, 1, 0.4, 1, 0.5, 0.5],
        )[0]
        action()

    def _publish(self) -> None:
        self.publish(self.random.choice([*QUEUES, QUEUES[0], TOPIC]), headers={"kind": "bread"}, key="k")

    def _fast_pop(self) -> None:
        self.publish(QUEUES[0], "fast_pop")

    def _assign(self) -> None:
        if not self.waiting:
            return
        place = self.random.choice(list(self.waiting))
        channel = self.waiting.pop(place)
        self.lapsed.pop(place, None)
        sequence, subscriber = place
        told = {"sequence": sequence, "subscriber": subscriber, "client": "bb02", "attempt": self.attempts[place]}
        if self.random.random() < 0.1:
            self.note("pop", channel, **told, size=7)
        else:
            self.note("assign", channel, **told, message_id=1)
            self.held[place] = channel

    def _settle(self) -> None:
        if not self.held:
            return
        place = self.random.choice(list(self.held))
        channel = self.held.pop(place)
        kind = self.random.choice(["finish", "finish", "finish", "fail", "release", "drop"])
        told: Row = {
            "sequence": place[0], "subscriber": place[1], "client": "bb02", "attempt": self.attempts[place],
        }  # fmt: skip
        if kind in {"fail", "drop"}:
            told["reason"] = f"oven {self.random.randrange(9)} is cold at 2026-11-19T12:00:0{self.random.randrange(9)}Z"
        if kind == "drop":
            told["moved_to"] = self.publish(GRAVE, headers={"death-reason": told["reason"]})
        self.note(kind, channel, **told)
        if kind in {"fail", "release"}:
            self.attempts[place] += kind == "fail"
            self.waiting[place] = channel
            if kind == "fail":
                self.lapsed[place] = channel

    def _late(self) -> None:
        """Finish a message whose lease has ended, before anyone else has it."""
        for place in list(self.lapsed):
            if place in self.waiting:
                channel = self.waiting.pop(place)
                attempt = self.attempts[place] - 1
                self.note(
                    "finish", channel, sequence=place[0], subscriber=place[1], client="bb02", attempt=attempt, late=True
                )
                del self.lapsed[place]
                return

    def _end(self) -> None:
        """Purge or delete a queue, or let the durable subscriber go."""
        kind = self.random.choice(["purge", "delete", "unsubscriber"])
        if kind == "unsubscriber" and not self.has_audit:
            return
        channel = TOPIC if kind == "unsubscriber" else self.random.choice(QUEUES)
        self.note(kind, channel, subscriber=AUDIT if channel is TOPIC else None)
        self.has_audit = self.has_audit and channel is not TOPIC
        for places in [self.waiting] if kind == "purge" else [self.waiting, self.held]:
            for place in [place for place, where in places.items() if where == channel]:
                del places[place]
                self.lapsed.pop(place, None)

    def _join(self) -> None:
        """Let the durable subscriber come, or come back."""
        if not self.has_audit:
            self.note("subscriber", TOPIC, subscriber=AUDIT)
            self.has_audit = True

    def _pass(self) -> None:
        if self.passed == 1:
            self.passed = self.note("subscriber", TOPIC, subscriber=PASSING) + 1
            return
        last = self.records[-1]["position"] if self.records else 1
        self.note("pass", TOPIC, subscriber=PASSING, sequence=self.passed, last_sequence=last, client="cc03")
        self.passed = last + 1


def history(seed: int, steps: int) -> list[Row]:
    """Return the records of a random history."""
    played = History(seed)
    for _ in range(steps):
        played.step()
    return played.records


def told_messages(records: list[Row]) -> dict[tuple[int, str | None], Row]:
    """Return what the table of messages must be, by sequence and subscriber."""
    published: dict[int, Row] = {}
    cursors: dict[tuple[int, str | None], Row] = {}

    def cursor(sequence: int, subscriber: str | None) -> Row:
        fresh = {
            "first": None,
            "held": None,
            "work": None,
            "attempts": None,
            "failures": 0,
            "releases": 0,
            "end": None,
            "consumer": None,
        }
        return cursors.setdefault((sequence, subscriber), fresh)

    def end(row: Row, record: Row, outcome: str, reason: str | None) -> None:
        if row["held"] is not None:
            row["work"] = (row["work"] or 0.0) + (record["time"] - row["held"]).total_seconds()
            row["held"] = None
        if row["end"] is None:
            row["end"] = (record["time"], outcome, reason, bool(record["late"]), record["moved_to"])

    for record in records:
        kind, sequence, time = record["kind"], record["sequence"], record["time"]
        if kind in {"publish", "fast_pop"}:
            published[sequence] = record
            if record["channel_type"] == "queue":
                cursor(sequence, None)
        if kind in {"purge", "delete", "unsubscriber"}:
            reason = {"purge": "purged", "delete": "deleted", "unsubscriber": "unsubscribed"}[kind]
            for (number, subscriber), row in cursors.items():
                same = all(published[number][name] == record[name] for name in ("channel_type", "channel", "tags"))
                concerned = same and subscriber == record["subscriber"] and row["end"] is None
                if concerned and (kind != "purge" or row["held"] is None):
                    end(row, record, "drop", reason)
            continue
        if kind == "pass":
            for number, publish in published.items():
                if publish["channel"] == record["channel"] and sequence <= number <= record["last_sequence"]:
                    row = cursor(number, record["subscriber"])
                    row.update(first=time, attempts=1, consumer=record["client"])
                    end(row, record, "finish", None)
            continue
        if kind == "subscriber":
            continue
        row = cursor(sequence, record["subscriber"]) if kind != "publish" else {}
        if kind in {"assign", "pop", "fast_pop"}:
            row["consumer"] = record["client"] if kind != "fast_pop" else None
            row["first"] = row["first"] or time
            row["attempts"] = record["attempt"] or 1
            row["held"] = time if kind == "assign" else None
        if kind in {"fail", "release"}:
            row["failures"] += kind == "fail"
            row["releases"] += kind == "release"
            row["work"] = (row["work"] or 0.0) + (time - row["held"]).total_seconds()
            row["held"] = None
        if kind in {"finish", "drop", "pop", "fast_pop"}:
            end(row, record, "drop" if kind == "drop" else "finish", record["reason"])
    for sequence, publish in published.items():
        if publish["channel_type"] == "topic" and not any(number == sequence for number, _ in cursors):
            cursor(sequence, None)
    return {place: {**row, "publish": published[place[0]]} for place, row in cursors.items()}


def wait_of(row: Row) -> float | None:
    """Return the seconds that a message could have been handed out before it was."""
    if row["first"] is None:
        return None
    publish = row["publish"]
    available = max(publish["time"], publish["due"] or publish["time"])
    return max(0.0, (row["first"] - available).total_seconds())


def percentile(values: list[float], share: float) -> float | None:
    """Return a percentile, between two values in proportion."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def told_minutes(records: list[Row]) -> dict[tuple[datetime, Channel], Row]:
    """Return what the table of minutes must be."""
    minutes: dict[tuple[datetime, Channel], Row] = {}

    def minute(time: datetime, channel: Channel) -> Row:
        fresh = {
            **dict.fromkeys(["published", "assigned", "finished", "failed", "released", "dropped", "dead_lettered"], 0),
            "waits": [], "works": [], "depth": None, "subscribers": None,
        }  # fmt: skip
        return minutes.setdefault((time.replace(second=0, microsecond=0), channel), fresh)

    counted = {
        "publish": ["published"], "fast_pop": ["published", "assigned"], "assign": ["assigned"], "pop": ["assigned"],
        "fail": ["failed"], "release": ["released"], "subscriber": [], "unsubscriber": [],
    }  # fmt: skip
    for record in records:
        if record["kind"] in counted:
            told = minute(record["time"], channel_of(record))
            for name in counted[record["kind"]]:
                told[name] += 1
    ends: list[tuple[datetime, Channel]] = []
    for row in told_messages(records).values():
        channel = channel_of(row["publish"])
        if row["first"] is not None:
            minute(row["first"], channel)["waits"].append(wait_of(row))
        if row["end"] is not None:
            time, outcome, _, _, moved_to = row["end"]
            told = minute(time, channel)
            told["finished"] += outcome == "finish"
            told["dropped"] += outcome == "drop"
            told["dead_lettered"] += moved_to is not None
            told["works"] += [row["work"]] if row["work"] is not None else []
            ends.append((time, channel))
    for (start, channel), told in minutes.items():
        if channel.type == "queue":
            over = start + timedelta(minutes=1)
            begun = sum(
                one["time"] < over for one in records
                if one["kind"] in {"publish", "fast_pop"} and channel_of(one) == channel
            )  # fmt: skip
            told["depth"] = begun - sum(time < over for time, where in ends if where == channel)
        else:
            told["subscribers"] = told_subscribers(records, start + timedelta(minutes=1))
            told["depth"] = sum(depth for _, depth in told["subscribers"].values())
    return minutes


def told_subscribers(records: list[Row], over: datetime) -> dict[str, tuple[int, int]]:
    """Return who takes from the topic at a moment: since which position, and how much it has not settled since."""
    past = [record for record in records if record["time"] < over and record["channel"] == TOPIC.name]
    there: dict[str, int] = {}
    for record in past:
        if record["kind"] == "subscriber":
            there[record["subscriber"]] = record["position"]
        if record["kind"] == "unsubscriber":
            del there[record["subscriber"]]
    settled = {place for place, row in told_messages(past).items() if row["end"] is not None}
    return {
        name: (
            since,
            sum(
                record["kind"] == "publish" and record["position"] > since and (record["position"], name) not in settled
                for record in past
            ),
        )
        for name, since in there.items()
    }


def channel_of(record: Row) -> Channel:
    """Return the channel of a record."""
    return Channel(record["channel_type"], record["channel"], tuple(record["tags"] or ()))


def split(records: list[Row], seed: int, parts: int) -> list[list[Row]]:
    """Cut records into stretches of random length."""
    cuts = sorted(random.Random(seed).sample(range(1, len(records)), parts - 1))
    return [records[start:end] for start, end in pairwise([0, *cuts, len(records)])]
