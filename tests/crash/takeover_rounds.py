"""Taking brokers, and the database under them, away in turn, under clients that know both brokers and are promised things.

Of two brokers on one PostgreSQL the one that serves is killed, or stopped so that it does not notice, or PostgreSQL itself
is killed. The ledger of promises is that of `native_rounds.py`; beside it stands how long it took until somebody was
handed a message again.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import penstock
from tests.crash.native_rounds import Ledger, Rounds
from tests.pair import Pair, readiness
from tests.postgres import PATIENCE, Postgres

KILLED, STOPPED, POSTGRESQL = "broker killed", "broker stopped", "PostgreSQL killed"
KINDS = (KILLED, STOPPED, POSTGRESQL)

_AT_ONCE = 10_000

#: By what was done: seconds until the first delivery; of PostgreSQL, from when it took connections again.
Times = dict[str, list[float]]


class Striker:
    """Does to the pair, and to PostgreSQL, what the next round wants."""

    def __init__(self, pair: Pair, postgres: Postgres) -> None:
        self.times: Times = {kind: [] for kind in KINDS}
        self._pair = pair
        self._postgres = postgres
        self._kinds = itertools.cycle(KINDS)
        self._is_delivered = threading.Event()

    def strike(self) -> None:
        """Take something away, wait until all is well and a message was delivered, and put the broker back."""
        kind = next(self._kinds)
        begun, mend = {KILLED: self._kill, STOPPED: self._stop, POSTGRESQL: self._kill_postgres}[kind]()
        self._is_delivered.clear()  # whatever comes from now on comes from the broker that serves now
        assert self._is_delivered.wait(PATIENCE), f"nothing was delivered after: {kind}"
        self.times[kind].append(time.monotonic() - begun)
        mend()

    def delivered(self) -> None:
        """Take note that somebody was handed a message."""
        self._is_delivered.set()

    def _kill(self) -> tuple[float, Callable[[], None]]:
        begun = time.monotonic()
        self._pair.active.kill()
        self._pair.take_over()
        return begun, self._pair.replace

    def _stop(self) -> tuple[float, Callable[[], None]]:
        begun = time.monotonic()
        self._pair.stop_time()
        return begun, self._pair.go_on

    def _kill_postgres(self) -> tuple[float, Callable[[], None]]:
        self._postgres.kill()
        self._pair.active.wait_for("standby")
        self._postgres.start()
        begun = time.monotonic()
        if self._comes_first() is self._pair.active:
            self._pair.active.wait_for("ready")
        else:
            self._pair.take_over()
        return begun, lambda: None

    def _comes_first(self) -> object:
        """Return the broker that serves, once one of them does."""
        while True:
            for broker in self._pair.brokers:
                if readiness(broker).get("status") == "ok":
                    return broker


async def fill(url: str, waiting: int) -> None:
    """Have so many messages wait that nobody asks for."""
    async with penstock.connect(url) as client:
        await client.create_queue("deep")
        for done in range(0, waiting, _AT_ONCE):
            await asyncio.gather(*(client.enqueue("deep", bytes(100)) for _ in range(min(_AT_ONCE, waiting - done))))


def takeover_rounds(
    place: Path, rounds: int, seed: int, progress: Callable[[int], object] = lambda _: None, *, waiting: int = 0
) -> tuple[Ledger, Times]:
    """Run so many rounds beside messages that wait; return what was promised and kept, and how long it took."""
    # PostgreSQL ends with the thread that has started it: this one lasts until all is over.
    with ThreadPoolExecutor(1) as thread, Postgres() as postgres, Pair(place, postgres.create_database()) as pair:
        asyncio.run(fill(pair.url, waiting))
        striker = Striker(pair, postgres)
        campaign = Rounds(pair.url, striker.strike, seed)
        campaign.ledger.watch = striker.delivered
        asyncio.run(campaign.run(rounds, progress, thread))
    return campaign.ledger, striker.times
