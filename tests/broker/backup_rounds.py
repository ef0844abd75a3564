"""Backing a server up again and again under clients that go on, and looking at what each backup restores.

What a client was promised before a backup was asked for has to be in it: what was confirmed is there unless its end had
begun before the backup was whole, what was completed is not there, and each transaction is there whole or not at all.
Beside, the change log of the server tells which messages there were at the position that the backup names.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import penstock
from penstock import Broker
from penstock.model.records import Kind
from penstock.runtime.backup import head_of
from penstock.runtime.recovery import restore_backup
from penstock.store.journal import Journal
from penstock.store.locate import store_at
from tests.served import FREE_PORTS, Served

WORK, OUT, PAIRS = "work", "out", "pairs"
#: Calls of each kind at a time.
AT_ONCE = 10
PATIENCE = 120.0
_ENDS = {Kind.FINISH, Kind.DROP, Kind.POP}

#: What makes the address of an empty store in a directory.
Target = Callable[[Path], str]


class Ledger:
    """What was sent, and what was promised, by the bodies of messages."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed: set[bytes] = set()
        #: What was to be completed or sent on, and what that was promised for.
        self.ending: set[bytes] = set()
        self.completed: set[bytes] = set()
        self.forwarded: set[bytes] = set()
        self.pairs: set[bytes] = set()

    def new_body(self) -> bytes:
        """Return a body that there was not yet."""
        self.sent += 1
        return b"%d" % self.sent


@dataclass
class Taken:
    """A backup, and what was promised before it was asked for and had begun when it was whole."""

    path: Path
    confirmed: set[bytes]
    completed: set[bytes]
    forwarded: set[bytes]
    pairs: set[bytes]
    ending: set[bytes]

    def check(self, work: list[bytes], out: list[bytes], pairs: list[bytes]) -> None:
        """Hold what was restored against that."""
        for bodies in (work, out, pairs):
            assert len(bodies) == len(set(bodies)), "a message is there twice"
        assert self.confirmed - self.ending <= set(work), "confirmed, never to be ended, and not there"
        assert not (self.completed | self.forwarded) & set(work), "settled, and still there"
        assert self.forwarded <= set(out), "taken, and not sent on"
        assert not set(work) & set(out), "sent on, and not taken"
        for side, other in ((b"a", b"b"), (b"b", b"a")):
            halves = {body[:-1] + other for body in pairs if body.endswith(side)}
            assert halves <= set(pairs), "half of a transaction"
        assert {body + side for body in self.pairs for side in (b"a", b"b")} <= set(pairs), "confirmed, and not there"


class Clients:
    """Clients at work on a server, until they are told to end."""

    def __init__(self, client: penstock.Client, seed: int) -> None:
        self.ledger = Ledger()
        self._client = client
        self._choice = random.Random(seed)
        self._is_over = False
        acts: list[Callable[[], Awaitable[None]]] = [self._produce, self._consume, self._pair]
        self.working = [asyncio.ensure_future(act()) for act in acts for _ in range(AT_ONCE)]

    async def stop(self) -> None:
        """End."""
        self._is_over = True
        await asyncio.gather(*self.working)

    async def _produce(self) -> None:
        while not self._is_over:
            body = self.ledger.new_body()
            await self._client.enqueue(WORK, body)
            self.ledger.confirmed.add(body)

    async def _pair(self) -> None:
        while not self._is_over:
            body = self.ledger.new_body()
            transaction = self._client.transaction()
            for side in (b"a", b"b"):
                transaction.enqueue(PAIRS, body + side)
            await transaction.commit()
            self.ledger.pairs.add(body)

    async def _consume(self) -> None:
        while not self._is_over:
            message = await self._client.poll(WORK, wait=0.2)
            if message is None:
                continue
            self.ledger.ending.add(message.body)
            if self._choice.random() < 0.5:
                await self._client.complete(message)
                self.ledger.completed.add(message.body)
                continue
            transaction = self._client.transaction()
            transaction.complete(message)
            transaction.enqueue(OUT, message.body)
            await transaction.commit()
            self.ledger.forwarded.add(message.body)


async def back_up(url: str, ledger: Ledger, path: Path) -> Taken:
    """Have the command back the server up."""
    taken = Taken(path, *map(set, (ledger.confirmed, ledger.completed, ledger.forwarded, ledger.pairs)), ending=set())
    command = [sys.executable, "-m", "penstock", "backup", str(path), "--url", url]
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    taken.ending = set(ledger.ending)
    return taken


async def restored(taken: Taken, where: str) -> set[int]:
    """Restore a backup, hold it against what was promised, and return the sequences that it has."""
    await asyncio.to_thread(restore_backup, taken.path, lambda: store_at(where), 0.0)
    async with Broker.open(where) as broker:
        seen = {status.queue: await broker.peek(status.queue, limit=10**7) for status in await broker.queues()}
    taken.check(*([one.body for one in seen.get(name, [])] for name in (WORK, OUT, PAIRS)))
    return {one.sequence for some in seen.values() for one in some}


def logged(journal: Path, position: int) -> set[int]:
    """Return which messages there were before a position, by what the change log tells."""
    store = Journal(journal)
    list(store.open().batches)
    live: set[int] = set()
    for batch in store.read(1, position - 1):
        for record in batch.records:
            if record[0] == Kind.PUBLISH:
                live.add(record[3])
            elif record[0] in _ENDS:
                live.discard(record[3])
    store.close()
    return live


async def _taken(
    place: Path, rounds: int, seed: int, progress: Callable[[int], object]
) -> tuple[Ledger, list[Taken], Path]:
    """Back a server up so many times; return what was promised, and the backups."""
    choice = random.Random(seed)
    with Served(place, *FREE_PORTS) as served:
        url = "penstock://{}:{}".format(*served.native)
        async with penstock.connect(url) as client:
            clients = Clients(client, seed)
            backups = []
            for number in range(rounds):
                await asyncio.wait(clients.working, timeout=choice.uniform(0.05, 0.5))
                backups.append(await back_up(url, clients.ledger, place / f"{number}.backup"))
                progress(number + 1)
            await clients.stop()
    return clients.ledger, backups, served.data


def backup_rounds(
    place: Path, rounds: int, seed: int, targets: list[Target], progress: Callable[[int], object] = lambda _: None
) -> Ledger:
    """Run so many rounds in a directory, each restored into the next of the targets; return what was promised."""

    async def run() -> Ledger:
        ledger, backups, journal = await _taken(place, rounds, seed, progress)
        for number, taken in enumerate(backups):
            found = await restored(taken, targets[number % len(targets)](place / f"{number}.data"))
            assert found == logged(journal, head_of(taken.path).position), "the log tells of other messages"
        return ledger

    return asyncio.run(run())
