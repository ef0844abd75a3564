"""Killing a whole server under STOMP load again and again, and checking what its clients were promised.

The clients live here and survive the server. What they were told is kept in a `Ledger`; at the end all queues are browsed,
and what is left in them has to agree with it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from tests.served import Served
from tests.stomp_wire import Frame, Gone, Wire

WORK, DEAD, OUT = "/queue/work", "/queue/DLQ.work", "/queue/out"
PAIRS = ("/queue/first", "/queue/second")
TOPIC = "/topic/events"
PRODUCERS = CONSUMERS = 2
#: Confirmations that one producer waits for at a time.
WINDOW = 20


class Ledger:
    """What was sent and what was confirmed, by the bodies of messages."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.confirmed: dict[str, set[str]] = {"work": set(), "pairs": set(), "events": set()}
        #: What an ACK was sent for, and what it was confirmed for.
        self.settling: set[str] = set()
        self.settled: set[str] = set()
        #: What was taken and sent on in one transaction, and what that was confirmed for.
        self.forwarding: set[str] = set()
        self.forwarded: set[str] = set()
        #: The round in which a message was last seen, and the body of each sequence.
        self.seen: dict[str, int] = {}
        self.bodies: dict[int, str] = {}
        self.heard: set[str] = set()
        #: The newest message of the topic of which an acknowledgement was confirmed.
        self.heard_to = 0

    def take(self, message: Frame, number: int) -> str:
        """Take note of a message of a queue; returns its body."""
        body = message.body.decode()
        assert body in self.sent, f"nobody sent {body}"
        assert body not in self.settled | self.forwarded, f"{body} came again after its end was confirmed"
        assert message.redelivered or self.seen.get(body) != number, f"{body} came again and was not marked"
        assert self.bodies.setdefault(message.sequence, body) == body, f"{message.sequence} was given twice"
        self.seen[body] = number
        return body

    def check(self, left: dict[str, list[str]]) -> None:
        """Hold what is left in the queues against what was promised."""
        work, out = left[WORK] + left[DEAD], left[OUT]
        for bodies in (work, out, *(left[queue] for queue in PAIRS)):
            assert len(bodies) == len(set(bodies)), "a message is there twice"
            assert self.sent.issuperset(bodies), "a message is there that nobody sent"
        lost = self.confirmed["work"] - self.settling - self.forwarding - set(work)
        assert not lost, f"confirmed, and not there: {lost}"
        assert not (self.settled | self.forwarded) & set(work), "settled, and still there"
        assert self.forwarded <= set(out), f"taken, and not sent on: {self.forwarded - set(out)}"
        assert not set(out) & set(work), f"sent on, and not taken: {set(out) & set(work)}"
        first, second = (set(left[queue]) for queue in PAIRS)
        assert first == second, f"half of a transaction: {first ^ second}"
        assert self.confirmed["pairs"] <= first, f"confirmed pairs are lost: {self.confirmed['pairs'] - first}"
        missed = self.confirmed["events"] - self.heard
        assert not missed, f"the durable subscriber missed {missed}"


class Rounds:
    """Clients at work on a server that is killed."""

    def __init__(self, served: Served, seed: int) -> None:
        self.ledger = Ledger()
        self._served = served
        self._seed = seed
        self._number = 0

    async def run(self, rounds: int, progress: Callable[[int], object] = lambda _: None) -> None:
        """Work and kill so many times, then check."""
        choice = random.Random(self._seed)
        await self._client(self._subscribe_for_good)
        for self._number in range(rounds):
            tasks = [asyncio.create_task(one) for one in self._clients()]
            await asyncio.wait(tasks, timeout=choice.uniform(0.05, 0.3))
            await asyncio.to_thread(self._kill, during_start=choice.random() < 0.2, wait=choice.uniform(0.05, 0.3))
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(end, Gone), f"seed {self._seed}, round {self._number}: a client ended by {end!r}"
            progress(self._number + 1)
        left: dict[str, list[str]] = {}
        for queue in (WORK, DEAD, OUT, *PAIRS):
            await self._client(partial(self._browse, left.setdefault(queue, []), queue))
        await self._client(self._hear_the_rest)
        self.ledger.check(left)

    def _kill(self, *, during_start: bool, wait: float) -> None:
        """Kill the server, now and then once more while it recovers, and start it again."""
        self._served.revive(killed_after=wait if during_start else None)

    def _clients(self) -> list[Coroutine[Any, Any, None]]:
        acts = [*(self._produce for _ in range(PRODUCERS)), *(self._consume for _ in range(CONSUMERS))]
        return [self._client(act) for act in (*acts, self._pair, self._publish, self._hear)]

    async def _client(self, act: Callable[[Wire], Awaitable[None]]) -> None:
        """Let a client act on a connection of its own."""
        wire = await Wire.open(self._served.stomp, client_id="audit")
        try:
            await act(wire)
        finally:
            await wire.close()

    # What clients do until they are cut off.

    async def _produce(self, wire: Wire) -> None:
        """Send messages, each with its receipt."""
        window = _Window()
        while True:
            body = self._new_body("work")
            done = wire.confirmed("SEND", {"destination": WORK}, body.encode())
            await window.add(done, self.ledger.confirmed["work"], body)

    async def _publish(self, wire: Wire) -> None:
        """Publish to the topic."""
        window = _Window()
        while True:
            body = self._new_body("events")
            done = wire.confirmed("SEND", {"destination": TOPIC}, body.encode())
            await window.add(done, self.ledger.confirmed["events"], body)

    async def _pair(self, wire: Wire) -> None:
        """Send two messages in each transaction."""
        window = _Window()
        while True:
            body = self._new_body("pair")
            wire.send("BEGIN", {"transaction": body})
            for queue in PAIRS:
                wire.send("SEND", {"destination": queue, "transaction": body}, body.encode())
            done = wire.confirmed("COMMIT", {"transaction": body})
            await window.add(done, self.ledger.confirmed["pairs"], body)

    async def _consume(self, wire: Wire) -> None:
        """Acknowledge most messages, refuse some, and send some on in a transaction with their acknowledgement."""
        choice = random.Random(f"{self._seed}-{self._number}")
        wire.send("SUBSCRIBE", {"id": 1, "destination": WORK, "ack": "client-individual", "prefetch-count": 50})
        window = _Window()
        while True:
            message = await wire.message()
            body, name = self.ledger.take(message, self._number), message.headers["ack"]
            draw = choice.random()
            if draw < 0.1:
                wire.send("NACK", {"id": name})
            elif draw < 0.7:
                self.ledger.settling.add(body)
                await window.add(wire.confirmed("ACK", {"id": name}), self.ledger.settled, body)
            else:
                self.ledger.forwarding.add(body)
                wire.send("BEGIN", {"transaction": body})
                wire.send("ACK", {"id": name, "transaction": body})
                wire.send("SEND", {"destination": OUT, "transaction": body}, body.encode())
                await window.add(wire.confirmed("COMMIT", {"transaction": body}), self.ledger.forwarded, body)

    async def _subscribe_for_good(self, wire: Wire) -> None:
        await wire.confirmed("SUBSCRIBE", self._audit)

    async def _hear(self, wire: Wire) -> None:
        """Hear what is published, as the durable subscriber."""
        wire.send("SUBSCRIBE", self._audit)
        await self._hear_until(wire, "")

    async def _hear_the_rest(self, wire: Wire) -> None:
        """Hear all that was published before now."""
        wire.send("SUBSCRIBE", self._audit)
        last = self._new_body("last")
        await wire.confirmed("SEND", {"destination": TOPIC}, last.encode())
        await self._hear_until(wire, last)

    async def _hear_until(self, wire: Wire, last: str) -> None:
        ledger, newest = self.ledger, 0
        while True:
            message = await wire.message()
            assert message.sequence > newest, "the topic is out of order"
            assert message.sequence > ledger.heard_to, "it came again after it was confirmed to have been acknowledged"
            newest = message.sequence
            ledger.heard.add(message.body.decode())
            done = wire.confirmed("ACK", {"id": message.headers["ack"]})
            done.add_done_callback(lambda future, to=newest: self._heard(future, to))
            if message.body.decode() == last:
                return

    # Inside.

    _audit = {"id": 1, "destination": TOPIC, "ack": "client", "durable-subscription-name": "audit"}  # noqa: RUF012

    def _heard(self, future: "asyncio.Future[None]", to: int) -> None:
        if not future.cancelled() and future.exception() is None:
            self.ledger.heard_to = max(self.ledger.heard_to, to)

    def _new_body(self, kind: str) -> str:
        body = f"{kind}-{len(self.ledger.sent)}"
        self.ledger.sent.add(body)
        return body

    async def _browse(self, bodies: list[str], queue: str, wire: Wire) -> None:
        """Add what waits in a queue, without touching it."""
        wire.send("SUBSCRIBE", {"id": 1, "destination": queue, "browser": "true"})
        while "browser" not in (message := await wire.message()).headers:
            bodies.append(message.body.decode())


class _Window:
    """Confirmations that somebody waits for: few enough that the server is never far behind."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def add(self, done: "asyncio.Future[None]", into: set[str], body: str) -> None:
        """Put a body into a set when this is done; wait here while there is too much to wait for."""
        done.add_done_callback(lambda future: into.add(body) if future.exception() is None else None)
        self._waiting.add(done)
        if len(self._waiting) >= WINDOW:
            finished, self._waiting = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in finished:
                one.result()


def stomp_rounds(place: Path, rounds: int, seed: int, progress: Callable[[int], object] = lambda _: None) -> Ledger:
    """Run so many rounds on a directory below `place`; return what was promised, and kept."""

    async def run() -> Ledger:
        with Served(place) as served:
            campaign = Rounds(served, seed)
            await campaign.run(rounds, progress)
            return campaign.ledger

    return asyncio.run(run())
