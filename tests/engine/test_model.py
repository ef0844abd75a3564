"""Queues against a plain model of them: the same message goes out, the same counts, nothing lost, nothing twice."""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.engine.clients import Client
from penstock.model.message import Message
from tests.engine.oracle import check
from tests.engine.rig import Rig

LEASE = 20.0
RETRY_DELAY = 6.0
RETRY_LIMIT = 3


@dataclass
class Plain:
    """A message of the model."""

    sequence: int
    body: bytes
    priority: int
    key: str | None
    group: str | None
    expires_at: float
    due: float
    place: int
    attempt: int = 1
    is_retried: bool = False
    holder: str | None = None
    deadline: float = 0.0


class QueueModel(RuleBasedStateMachine):
    """A queue with retries, a list that says what it ought to do, and two clients who fetch."""

    @initialize(recalls=st.booleans(), delay=st.sampled_from([0.0, RETRY_DELAY]))
    def begin(self, recalls: bool, delay: float) -> None:
        """Make the queue."""
        self.rig = Rig(recalls=recalls)
        self.delay = delay
        self.rig.queue(retry_limit=RETRY_LIMIT, retry_delay=delay, heartbeat_timeout=LEASE)
        self.model: dict[int, Plain] = {}
        self.buried: list[bytes] = []
        self.handles: dict[int, Message] = {}
        self.number = 0
        self.clients: dict[str, Client] = {}
        self._connect()

    def _connect(self) -> None:
        for name in ("ann", "bob"):
            if name not in self.clients:
                self.clients[name] = self.rig.connect()

    # What the model knows.

    def _visible(self, one: Plain) -> bool:
        return one.holder is None and one.due <= self.rig.now < one.expires_at

    def _blocked(self, one: Plain) -> bool:
        """Tell whether others of its group keep it back: one that is out, or one whose retry is still to come."""
        return one.group is not None and any(
            other.group == one.group and (other.holder is not None or (other.is_retried and other.due > self.rig.now))
            for other in self.model.values()
            if other is not one
        )

    def _expected(self) -> Plain | None:
        ready = [one for one in self.model.values() if self._visible(one) and not self._blocked(one)]
        firsts = [
            one
            for one in ready
            if one.group is None or one.place == min(two.place for two in ready if two.group == one.group)
        ]
        return min(firsts, key=_order, default=None)

    def _bury(self, one: Plain) -> None:
        del self.model[one.sequence]
        self.buried.append(one.body)

    def _fail(self, one: Plain) -> None:
        if one.attempt >= RETRY_LIMIT:
            self._bury(one)
        else:
            one.holder, one.attempt, one.due = None, one.attempt + 1, self.rig.now + self.delay
            one.is_retried = True

    # What happens.

    @rule(
        priority=st.sampled_from([4, 4, 9]),
        delay=st.sampled_from([None, None, 5.0]),
        ttl=st.sampled_from([None, None, 15.0]),
        key=st.sampled_from([None, None, "k"]),
        group=st.sampled_from([None, None, "g", "h"]),
    )
    def publish(
        self, priority: int, delay: float | None, ttl: float | None, key: str | None, group: str | None
    ) -> None:
        """Publish; a message of the key that waits is replaced."""
        if group is not None:
            priority, delay, key = 4, None, None  # what these do within a group is told in the tests of groups
        self.number += 1
        body = b"%d" % self.number
        old = next((one for one in self.model.values() if key and one.key == key and one.holder is None), None)
        if old is not None and self.rig.queue().keys.get("k") != old.sequence:
            return  # two of the key wait, one of them came back: which goes is told in the tests of queues
        sequence = self.rig.publish(body, priority=priority, delay=delay, ttl=ttl, key=key, group=group)
        now = self.rig.now
        place = sequence
        if old is not None:
            place = old.place
            del self.model[old.sequence]
        expires_at = now + ttl if ttl else float("inf")
        self.model[sequence] = Plain(sequence, body, priority, key, group, expires_at, now + (delay or 0.0), place)

    @rule(name=st.sampled_from(["ann", "bob"]))
    def take(self, name: str) -> None:
        """Fetch: the model's first message comes, or none."""
        expected = self._expected()
        message = self.rig.take(client=self.clients[name])
        if expected is None:
            assert message is None
            return
        assert message is not None
        assert (message.sequence, message.body, message.attempt) == (
            expected.sequence,
            expected.body,
            expected.attempt,
        )
        expected.holder, expected.deadline = name, self.rig.now + LEASE
        self.handles[message.sequence] = message

    @precondition(lambda self: self.handles)
    @rule(choice=st.integers(0, 100), outcome=st.sampled_from(["finish", "finish", "fail", "release", "reject"]))
    def settle(self, choice: int, outcome: str) -> None:
        """Settle what somebody holds."""
        sequence = sorted(self.handles)[choice % len(self.handles)]
        message = self.handles.pop(sequence)
        one = self.model[sequence]
        getattr(self.rig, outcome)(message)
        if outcome == "finish":
            del self.model[sequence]
        elif outcome == "fail":
            self._fail(one)
        elif outcome == "release":
            one.holder, one.due = None, 0.0
        else:
            self._bury(one)

    @rule(seconds=st.sampled_from([1.0, 5.0, 6.0, 19.0, 30.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass: leases end, delays too, and messages expire."""
        self.rig.wait(seconds)
        for one in sorted(self.model.values(), key=lambda one: one.deadline):
            if one.holder is not None and one.deadline <= self.rig.now:
                del self.handles[one.sequence]
                self._fail(one)
        self._expire()

    def _expire(self) -> None:
        self.rig.wait(0.0)
        for one in list(self.model.values()):
            if one.holder is None and one.expires_at <= self.rig.now:
                self._bury(one)

    @rule(name=st.sampled_from(["ann", "bob"]))
    def disconnect(self, name: str) -> None:
        """Cut a client off: all that it held failed."""
        self.rig.disconnect(self.clients.pop(name))
        for one in list(self.model.values()):
            if one.holder == name:
                del self.handles[one.sequence]
                self._fail(one)
        self._expire()
        self._connect()

    @rule()
    def purge(self) -> None:
        """Drop all that waits."""
        dropped = self.rig.engine.channels.purge_queue(self.rig.queue(), self.rig.now)
        waiting = [one for one in self.model.values() if one.holder is None]
        assert dropped == len(waiting)
        for one in waiting:
            del self.model[one.sequence]

    @rule(indexed=st.booleans())
    def restart(self, indexed: bool) -> None:
        """Start again from the log: what was held waits again, and does not count."""
        position = self.rig.engine.effects.position
        index = self.rig.index() if indexed else None
        self.rig = self.rig.restart(index=index, from_position=position if indexed else 0)
        self.clients = {}
        self.handles = {}
        for one in self.model.values():
            if one.holder is not None:
                one.holder, one.due = None, 0.0
        self._expire()
        self._connect()

    # What is true at any time.

    @invariant()
    def nothing_is_lost_and_nothing_is_twice(self) -> None:
        """Compare counts, bytes and dead letters, and look whether the engine is in order."""
        queue = self.rig.queue()
        self._expire()
        assert queue.length == len(self.model)
        assert queue.bytes == sum(len(one.body) for one in self.model.values())
        assert len(queue.assigned) == len(self.handles)
        assert queue.waiting == sum(self._visible(one) for one in self.model.values())
        assert set(queue.assigned) | set(queue.waiting_sequences()) == set(self.model)
        grave: Any = self.rig.queue("DLQ.q")
        assert grave.length == len(self.buried)
        assert sorted(entry[7] for entry in grave.ready.entries()) == sorted(self.buried)
        check(self.rig.engine)


def _order(one: Plain) -> tuple[int, int]:
    return (-one.priority, one.place)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
