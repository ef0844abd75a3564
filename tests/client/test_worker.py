"""Workers: how many at a time, what becomes of each message, and how they end."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
import penstock.sync
from penstock.client.worker import Workers
from tests.client.conftest import url_of
from tests.served import PATIENCE, Served

PROGRAM = Path(__file__).with_name("working.py")


async def test_what_returns_is_finished_and_what_raises_has_failed(client: penstock.Client) -> None:
    """With the error as the reason, and the others undisturbed."""
    await client.create_queue("work", retry_limit=1)
    await client.enqueue_many("work", [b"good", b"bad", b"good"])
    workers, left = Workers(client), 3

    @workers.on("work", concurrency=2)
    async def handle(message: penstock.Message) -> None:
        nonlocal left
        left -= 1
        if not left:
            workers.stop()
        if message.body == b"bad":
            raise ValueError("too bad")

    await workers.run()
    status = await client.status("work")
    assert (status.ready, status.assigned, status.totals["finished"]) == (0, 0, 2)
    dead = await client.pop("DLQ.work")
    assert (dead.body, dead.headers["death-reason"]) == (b"bad", "ValueError: too bad")


async def test_so_many_are_worked_on_at_a_time_and_no_more(client: penstock.Client) -> None:
    """Functions run in threads, each as long as it takes."""
    await client.enqueue_many("threads", [b"x"] * 6)
    workers, gate, at_once, most, left = Workers(client), threading.Lock(), 0, 0, 6
    both = threading.Barrier(3, timeout=PATIENCE)

    @workers.on("threads", concurrency=3)
    def handle(message: penstock.Message) -> None:
        nonlocal at_once, most, left
        with gate:
            at_once += 1
            most = max(most, at_once)
        both.wait()
        with gate:
            at_once -= 1
            left -= 1
            if not left:
                loop.call_soon_threadsafe(workers.stop)

    loop = asyncio.get_running_loop()
    await workers.run()
    assert most == 3
    assert (await client.status("threads")).totals["finished"] == 6


async def test_a_subscription_that_fails_ends_the_work(client: penstock.Client) -> None:
    """The error leaves `run`."""
    workers = Workers(client)
    workers.on("a,b", match="exact", selector="(")(print)
    with pytest.raises(penstock.BadRequest):
        await workers.run()


async def test_what_is_not_done_in_time_is_given_back(client: penstock.Client) -> None:
    """Uncounted: it is nobody's failure."""
    await client.enqueue("late", b"x")
    workers = Workers(client)

    @workers.on("late")
    async def handle(message: penstock.Message) -> None:
        workers.stop()
        await asyncio.Event().wait()

    await workers.run(grace_seconds=0.05)
    again = await client.poll("late", wait=5)
    assert (again.attempt, again.redelivered) == (1, True)


def test_sigterm_lets_handlers_end_and_gives_back_the_rest(served: Served) -> None:
    """The program ends with 0; what it was working on is finished, and nothing has failed."""
    process = subprocess.Popen([sys.executable, str(PROGRAM), url_of(served)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "done\n"
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    with penstock.sync.connect(url_of(served)) as broker:
        status = broker.status("terminated")
        assert (status.ready, status.assigned) == (4, 0)
        assert (status.totals["finished"], status.totals["retried"]) == (1, 0)
