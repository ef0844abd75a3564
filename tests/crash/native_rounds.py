"""Killing a server again and again under clients that outlast it, and checking what they were promised.

The clients are those of `penstock.connect`: they come back as who they were, hold what they held, and ask again what was
not answered. What returned without an error counts as promised; at the end all queues are emptied and have to agree.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

import penstock
from penstock.model.errors import NoObject, NotAssigned
from tests.served import FREE_PORTS, Served

WORK, DEAD, OUT = "work", "DLQ.work", "out"
PRODUCERS = CONSUMERS = 2
#: Calls of one client at a time.
AT_ONCE = 20


class Ledger:
    """What was sent, and what was promised, by the bodies of messages."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        #: What was to be completed or sent on, and what that was promised for.
        self.ending: set[bytes] = set()
        self.completed: set[bytes] = set()
        self.forwarded: set[bytes] = set()
        self.refused: Counter[str] = Counter()
        #: Is told of each message that comes.
        self.watch: Callable[[], object] = lambda: None

    def take(self, message: penstock.Message) -> bytes:
        """Take note of a message; returns its body."""
        self.watch()
        body = message.body
        assert body in self.sent, f"nobody sent {body!r}"
        assert body not in self.completed | self.forwarded, f"{body!r} came again after its end was promised"
        return body

    def check(self, left: dict[str, list[bytes]]) -> None:
        """Hold what is left in the queues against what was promised."""
        work, out = left[WORK] + left[DEAD], left[OUT]
        for bodies in (work, out):
            assert len(bodies) == len(set(bodies)), "a message is there twice, in spite of its dedup id"
        lost = self.confirmed - self.ending - set(work)
        assert not lost, f"confirmed, and not there: {lost}"
        gone = self.confirmed - self.completed - set(out) - set(work)
        assert gone <= self.ending, f"confirmed, never to be ended, and gone: {gone}"
        assert not (self.completed | self.forwarded) & set(work), "settled, and still there"
        assert self.forwarded <= set(out), f"taken, and not sent on: {self.forwarded - set(out)}"
        assert not set(out) & set(work), f"sent on, and not taken: {set(out) & set(work)}"


class Rounds:
    """Clients at work on servers that are struck, again and again, and serve once more when `strike` returns."""

    def __init__(self, url: str, strike: Callable[[], object], seed: int) -> None:
        self.ledger = Ledger()
        self._url = url
        self._strike = strike
        self._choice = random.Random(seed)
        self._is_over = False

    async def run(
        self, rounds: int, progress: Callable[[int], object] = lambda _: None, executor: Executor | None = None
    ) -> None:
        """Work and strike so many times, from a thread of the executor, then check."""
        loop = asyncio.get_running_loop()
        acts = [*(self._produce for _ in range(PRODUCERS)), *(self._consume for _ in range(CONSUMERS))]
        working = [asyncio.ensure_future(self._client(act)) for act in acts]
        for number in range(rounds):
            await asyncio.wait(working, timeout=self._choice.uniform(0.05, 0.3))
            await loop.run_in_executor(executor, self._strike)
            progress(number + 1)
        self._is_over = True
        await asyncio.gather(*working)
        async with penstock.connect(self._url) as client:
            self.ledger.check({queue: await self._emptied(client, queue) for queue in (WORK, DEAD, OUT)})

    async def _client(self, act: Callable[[penstock.Client], Awaitable[None]]) -> None:
        async with penstock.connect(self._url) as client:
            await client.create_queue(WORK)
            await asyncio.gather(*(act(client) for _ in range(AT_ONCE)))

    async def _produce(self, client: penstock.Client) -> None:
        """Post messages, each once."""
        while not self._is_over:
            body = b"%d" % len(self.ledger.sent)
            self.ledger.sent.add(body)
            await client.enqueue(WORK, body, dedup_id=body.decode())
            self.ledger.confirmed.add(body)

    async def _consume(self, client: penstock.Client) -> None:
        """Complete most messages, refuse some, and send some on together with their completion."""
        while not self._is_over:
            message = await client.poll(WORK, wait=0.2)
            if message is None:
                continue
            try:
                await self._end(client, message, self.ledger.take(message))
            except (NoObject, NotAssigned) as error:  # the assignment was not written when the server was killed
                self.ledger.refused[type(error).__name__] += 1

    async def _end(self, client: penstock.Client, message: penstock.Message, body: bytes) -> None:
        draw = self._choice.random()
        if draw < 0.1:
            await client.fail(message)
            return
        self.ledger.ending.add(body)
        if draw < 0.7:
            await client.complete(message)
            self.ledger.completed.add(body)
            return
        transaction = client.transaction()
        transaction.complete(message)
        transaction.enqueue(OUT, body)
        await transaction.commit()
        self.ledger.forwarded.add(body)

    async def _emptied(self, client: penstock.Client, queue: str) -> list[bytes]:
        """Take all that is left."""
        bodies: list[bytes] = []
        await client.create_queue(queue)
        while (message := await client.pop(queue)) is not None:
            bodies.append(message.body)
        assert (await client.status(queue)).assigned == 0, "somebody who is gone holds something"
        return bodies


def native_rounds(place: Path, rounds: int, seed: int, progress: Callable[[int], object] = lambda _: None) -> Ledger:
    """Run so many rounds on a directory below `place`; return what was promised, and kept."""

    async def run() -> Ledger:
        with Served(place, *FREE_PORTS) as served:
            campaign = Rounds("penstock://{}:{}".format(*served.native), served.revive, seed)
            await campaign.run(rounds, progress)
            return campaign.ledger

    return asyncio.run(run())
