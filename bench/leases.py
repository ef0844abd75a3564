"""How long the loop is held when many leases run out at one instant.

A task that wakes every millisecond sees the longest time for which the loop did not come round. All leases are started
anew by one `keep_alive()`, so that they run out at the same moment; "lengths all different" gives each a length of its
own instead, chosen so that they still do.
"""

import argparse
import asyncio
import sys
from time import perf_counter
from typing import Any, NamedTuple

from harness import Gaps, bar, describe_machine, directory, parser, percentile, progress, run, table

from penstock import Broker

LEASE_SECONDS = 2.0
CHUNK = 1000
PATIENCE_SECONDS = 60.0


class Case(NamedTuple):
    """What happens to a message whose lease has run out."""

    name: str
    settings: dict[str, Any]
    different: bool = False
    again: bool = False  # whether a subscriber waits for it


CASES = [
    Case("back into the queue", {"retry_limit": 5}),
    Case("back, and on to a subscriber", {"retry_limit": 5}, again=True),
    Case("retried later", {"retry_limit": 5, "retry_delay": 60}),
    Case("dead-lettered", {"retry_limit": 1}),
    Case("lengths all different", {"retry_limit": 5}, different=True),
]


async def hold(broker: Broker, count: int, *, different: bool) -> float:
    """Take all messages under leases that end together; return when."""
    await broker.enqueue_many("work", [b"x" * 100] * count, confirm="ready")
    end = perf_counter() + LEASE_SECONDS
    if different:
        while await broker.poll("work", work_timeout=end - perf_counter()) is not None:
            pass
        return end
    while await broker.poll_many("work", CHUNK, work_timeout=LEASE_SECONDS):  # noqa: ASYNC110  # others get a turn
        await asyncio.sleep(0)
    await broker.keep_alive()
    return perf_counter() + LEASE_SECONDS


async def work_again(broker: Broker, count: int) -> None:
    """Take all that comes back, and complete it."""
    async with broker.subscribe("work", credit=count) as messages:
        for _ in range(count):
            await broker.complete(await anext(messages))


async def measure(where: str, count: int, case: Case) -> tuple[float, float, float]:
    """Return the longest gap before the instant, that from it on, and how long it took until all was done."""
    async with Broker.open(where, confirm="ready") as broker, asyncio.timeout(PATIENCE_SECONDS):
        await broker.create_queue("work", **case.settings)
        end = await hold(broker, count, different=case.different)
        worker = asyncio.create_task(work_again(broker, count)) if case.again else None
        async with Gaps() as gaps:
            await asyncio.sleep(end - perf_counter() - 0.1)
            if (await broker.status("work")).assigned != count:
                raise SystemExit("leases ran out before their time")
            before, gaps.longest = gaps.longest, 0.0
            while (await broker.status("work")).assigned or not (worker is None or worker.done()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            seconds = perf_counter() - end
        if worker is not None:
            await worker
    return before, gaps.longest, seconds


def line(options: argparse.Namespace, store: str, case: Case) -> list[object]:
    """Return a line of the table."""
    found = []
    for _ in range(options.rounds):
        progress(f"{store}, {case.name}")
        with directory(options.data) as path:
            found.append(run(measure(path if store == "journal" else "memory:", options.leases, case), options.loop))
    gaps = [gap * 1e3 for _, gap, _ in found]
    before, seconds = (percentile([one[index] for one in found], 50) or 0.0 for index in (0, 2))
    return [f"{store}, {case.name}", before * 1e3, min(gaps), max(gaps), bar(min(gaps), 100, at_least=False), seconds]


def main() -> None:
    """Measure."""
    arguments = parser(__doc__)
    arguments.add_argument("--leases", type=int, default=10_000, help="that run out (10000)")
    arguments.add_argument("--rounds", type=int, default=3, help="(3)")
    arguments.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio", help="event loop (asyncio)")
    options = arguments.parse_args()
    describe_machine()
    table(
        f"The loop while {options.leases:,} leases run out at one instant, {options.loop}",
        ["", "gap before, ms", "gap then, best, ms", "worst, ms", "", "until all done, s"],
        [line(options, store, case) for store in ("memory", "journal") for case in CASES],
    )


if __name__ == "__main__":
    sys.exit(main())
