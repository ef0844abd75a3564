"""Killing the process of `kill_load.py` again and again, and checking its log against what was promised."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOAD = Path(__file__).with_name("kill_load.py")
Event = dict[str, Any]
Name = tuple[str, int]  # channel and sequence


Process = subprocess.Popen[bytes]


def kill(process: Process, _: int) -> None:
    """End a round by killing the process; it must have been running until then."""
    process.kill()
    code = process.wait()
    assert code == -signal.SIGKILL, f"it ended by itself with {code}"


def kill_rounds(
    place: Path,
    rounds: int,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
    *,
    where: str | None = None,
    end: Callable[[Process, int], None] = kill,
) -> "Check":
    """Run so many rounds on a store, which is a directory below `place` unless said, then drain it; return the checked log.

    `end` ends the process of a round, by the round's number.
    """
    choice = random.Random(seed)
    log = place / "log"
    log.touch()
    load = [sys.executable, str(LOAD), where or str(place / "data"), str(log)]
    for number in range(rounds):
        _killed_round(place / "errors", [*load, str(number), str(seed)], log, choice, end)
        progress(number + 1)
    done = subprocess.run([*load, str(rounds), str(seed), "drain"], capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise AssertionError(f"draining failed: {done.stderr.decode()}")
    check = Check(rounds)
    for line in log.read_text().splitlines():
        check.apply(json.loads(line))
    check.finish()
    return check


def _killed_round(
    errors: Path, load: list[str], log: Path, choice: random.Random, end: Callable[[Process, int], None]
) -> None:
    """Start the load, let it work a little, and kill it; one in five is killed before it may be ready."""
    *_, number, seed = load
    during_start = number != "0" and choice.random() < 0.2
    wait = choice.uniform(0.15, 0.6) if during_start else choice.uniform(0.05, 0.8)
    offset = log.stat().st_size
    with errors.open("wb") as stderr, subprocess.Popen(load, stderr=stderr) as process:
        try:
            _wait_until_ready(process, log, offset, during_start=during_start)
            time.sleep(wait)
            end(process, int(number))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {number}: {error}: {errors.read_text()}") from error
        finally:
            process.kill()


def _wait_until_ready(process: Process, log: Path, offset: int, *, during_start: bool) -> None:
    deadline = time.monotonic() + 60
    while not during_start and b'"ready"' not in _since(log, offset):
        assert process.poll() is None, "it ended before it was ready"
        assert time.monotonic() < deadline, "it did not get ready"
        time.sleep(0.005)


def _since(log: Path, offset: int) -> bytes:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read()


class Check:
    """Reads the log in order; raises `AssertionError` where a promise was broken."""

    def __init__(self, last_round: int) -> None:
        self.last_round = last_round
        self.round = 0
        self.counts: dict[str, int] = defaultdict(int)
        #: Body of each sequence, whoever saw it.
        self.bodies: dict[int, str] = {}
        self.seen: dict[Name, list[Event]] = defaultdict(list)
        self.round_of: dict[int, int] = {}
        self.confirmed: dict[str, Event] = {}
        #: Bodies that some assignment or settlement may have ended, or that were taken at the end.
        self.ending: set[str] = set()
        self.completing: set[Name] = set()
        self.ended: dict[Name, Event] = {}
        self.failing: dict[Name, int] = defaultdict(int)
        self.floor: dict[Name, int] = {}
        self.publishing: dict[str, Event] = {}
        #: Sequences of a body that a crash cannot take back any more.
        self.lasting: dict[str, set[int]] = defaultdict(set)
        self.groups: dict[str, set[int]] = defaultdict(set)
        self.held: dict[str, int] = {}
        self.first_in_round: dict[str, tuple[int, int]] = {}

    def apply(self, event: Event) -> None:
        """Take note of one line."""
        self.counts[event["event"]] += 1
        if event["round"] != self.round:
            self.round = event["round"]
            self.held.clear()
        getattr(self, "_" + event["event"])(event)

    def finish(self) -> None:
        """Check what can only be said at the end."""
        assert self.counts["drained"] == 1
        for body, event in self.confirmed.items():
            assert body in self.ending, f"a confirmed message is lost: {event}"
        for body, sequences in self.lasting.items():
            assert len(sequences) <= 1, f"{body} was to be stored once, but has the sequences {sequences}"
        pairs = {body for body in self.lasting if body.endswith(("-a", "-b"))}
        for body in pairs:
            other = body[:-1] + ("b" if body.endswith("a") else "a")
            assert other in self.ending, f"half of a transaction is lost: {other}"

    def _ready(self, event: Event) -> None:
        pass

    def _publishing(self, event: Event) -> None:
        self.publishing.setdefault(event["body"], event)
        if event["body"].endswith("-a"):
            self.publishing.setdefault(event["body"][:-1] + "b", event)

    def _published(self, event: Event) -> None:
        self.confirmed[event["body"]] = event
        if event.get("sequence"):
            self._named(event)
            self.lasting[event["body"]].add(event["sequence"])
            if event.get("group"):
                self.groups[event["group"]].add(event["sequence"])

    def _named(self, event: Event) -> None:
        sequence, body = event["sequence"], event["body"]
        known = self.bodies.setdefault(sequence, body)
        self.round_of.setdefault(sequence, event["round"])
        assert known == body, f"sequence {sequence} was given to {known} and to {body}"

    def _got(self, event: Event) -> None:
        name = event["channel"], event["sequence"]
        before = self.seen[name]
        is_dead = event["channel"].startswith("DLQ.")
        self._named(event)
        assert name not in self.ended, f"it came back after {self.ended[name]}: {event}"
        if before:
            last = before[-1]
            must = last["round"] == event["round"] or any(one["sync"] != "ready" for one in before)
            assert event["redelivered"] or not must, f"a duplicate is not marked: {last} then {event}"
            if last["round"] == event["round"]:
                assert event["attempt"] >= last["attempt"], f"attempts go back: {last} then {event}"
        elif event["redelivered"]:
            self.counts["unseen"] += 1  # assigned and written, but the process was killed before it could tell
        assert event["attempt"] >= self.floor.get(name, 1), f"attempts fell below {self.floor[name]}: {event}"
        assert event["attempt"] <= 1 + self.failing[name], f"a failure was counted that was none: {event}"
        delay = self.publishing[event["body"]].get("delay", 0.0)
        assert is_dead or event["at"] > self.publishing[event["body"]]["at"] + delay - 0.05, (
            f"it came too soon: {event}"
        )
        before.append(event)
        if event["sync"] != "ready":
            self.floor[name] = event["attempt"]
        if not is_dead and (event["sync"] != "ready" or event["round"] > self.round_of[event["sequence"]]):
            self.lasting[event["body"]].add(event["sequence"])
        self._check_order(event)

    def _check_order(self, event: Event) -> None:
        sequence, group, channel = event["sequence"], event["group"], event["channel"]
        if group:
            assert group not in self.held, f"{self.held.get(group)} of its group is in work: {event}"
            self.held[group] = sequence
            self.groups[group].add(sequence)
            earlier = [one for one in self.groups[group] if one < sequence and (channel, one) not in self.completing]
            assert not earlier, f"{earlier} of its group should have come before: {event}"
        if channel == "events":
            number, last = self.first_in_round.get(channel, (-1, 0))
            assert number != event["round"] or last < sequence, f"out of order after {last}: {event}"
            self.first_in_round[channel] = (event["round"], sequence)

    def _settling(self, event: Event, *, ends: bool) -> None:
        name = event["channel"], event["sequence"]
        group = self.seen[name][-1]["group"]
        if group:
            self.held.pop(group, None)
        if ends:
            self.ending.add(self.bodies[event["sequence"]])

    def _completing(self, event: Event) -> None:
        self.completing.add((event["channel"], event["sequence"]))
        self._settling(event, ends=True)

    def _completed(self, event: Event) -> None:
        self.ended[event["channel"], event["sequence"]] = event
        self.lasting[self.bodies[event["sequence"]]].add(event["sequence"])

    def _failing(self, event: Event) -> None:
        self.failing[event["channel"], event["sequence"]] = event["attempt"]
        self._settling(event, ends=False)

    def _failed(self, event: Event) -> None:
        name = event["channel"], event["sequence"]
        if event["attempt"] < 3 or event["channel"] != "work":
            self.floor[name] = event["attempt"] + 1
        else:
            self.ended[name] = event

    def _releasing(self, event: Event) -> None:
        self._settling(event, ends=False)

    def _released(self, event: Event) -> None:
        pass

    def _rejecting(self, event: Event) -> None:
        self._settling(event, ends=False)

    def _rejected(self, event: Event) -> None:
        self.ended[event["channel"], event["sequence"]] = event

    def _left(self, event: Event) -> None:
        assert not event["length"], f"messages are left that nobody gets: {event}"

    def _drained(self, event: Event) -> None:
        pass
