"""The pipeline shown to a person: `python -m penstock.pipeline.jobs.demo`, or `make pipeline-demo`.

A broker is started, some clients publish and work, and some of the work fails. Then what happened is brought into a lake
and told on a page.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.client.client import Client, connect
from penstock.model.errors import PenstockError
from penstock.pipeline.jobs.report import write_report
from penstock.pipeline.jobs.run import Run, run
from penstock.pipeline.jobs.session import sentence_of, started

_SECONDS = 60.0
_ROWS_PER_BATCH = 1_000_000
#: Workers that hang let their leases run out after this time.
_LEASE_SECONDS = 2.0
_STOP_SECONDS = 30.0


@dataclass(slots=True, frozen=True)
class Job:
    """A queue, how many messages a second it gets, who works on them and how often that goes wrong."""

    queue: str
    tags: tuple[str, ...]
    rate: float
    workers: int
    work_seconds: float
    failures: float
    reasons: tuple[str, ...]


JOBS = (
    Job(
        "orders",
        ("eu",),
        60,
        4,
        0.04,
        0.15,
        ("payment gateway 10.0.3.{a} timed out after {b} ms", "no stock of 'sku-{b}'"),
    ),
    Job("orders", ("us",), 40, 4, 0.02, 0.02, ("payment gateway 10.0.4.{a} timed out after {b} ms",)),
    Job(
        "emails",
        (),
        50,
        4,
        0.01,
        0.05,
        ("550 mailbox user{b}@example.org unavailable", "connection reset by 10.1.0.{a}"),
    ),
    Job("thumbnails", (), 20, 2, 0.08, 0.03, ('cannot decode "image-{b}.jpeg" at byte {b}',)),
    Job("invoices", (), 10, 1, 0.01, 0.0, ()),
)


class Traffic:
    """Publishers and workers that go on for some seconds."""

    def __init__(self, broker: Client, seconds: float) -> None:
        self._broker = broker
        self._end = asyncio.get_running_loop().time() + seconds
        self._chance = random.Random(7)  # noqa: S311  # a demonstration, no secret

    async def flow(self) -> None:
        """Let messages flow through all queues, and news to a subscriber."""
        for job in JOBS:
            await self._broker.create_queue(job.queue, tags=job.tags, retry_limit=3, retry_delay=1.0)
        async with asyncio.TaskGroup() as group:
            for job in JOBS:
                group.create_task(self._publish(job))
                for _ in range(job.workers):
                    group.create_task(self._work(job))
            group.create_task(self._news())

    @property
    def _goes_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._end

    async def _publish(self, job: Job) -> None:
        number = 0
        while self._goes_on:
            number += 1
            body = f'{{"{job.queue}": {number}, "lines": [{{"sku": "bread", "count": 2}}]}}'
            headers = {"content-type": "application/json", "trace": f"{self._chance.getrandbits(64):016x}"}
            await self._broker.enqueue(job.queue, body.encode(), tags=job.tags, headers=headers)
            await asyncio.sleep(self._chance.expovariate(job.rate))

    async def _work(self, job: Job) -> None:
        while self._goes_on:
            message = await self._broker.poll(job.queue, tags=job.tags, wait=0.5, work_timeout=_LEASE_SECONDS)
            if message is None:
                continue
            await asyncio.sleep(self._chance.lognormvariate(0.0, 0.6) * job.work_seconds)
            if self._chance.random() < job.failures:
                reason = self._chance.choice(job.reasons)
                reason = reason.format(a=self._chance.randrange(256), b=self._chance.randrange(9000))
                await self._broker.fail(message, reason=reason)
            else:
                await self._broker.complete(message)

    async def _news(self) -> None:
        async with self._broker.subscribe(topic="news.*", durable="archive") as archive:
            number = 0
            while self._goes_on:
                number += 1
                await self._broker.publish("news.eu", b"the river rises")
                await self._broker.complete(await anext(archive))
                await asyncio.sleep(0.2)


@contextmanager
def served(data: Path) -> Iterator[str]:
    """Start a broker on a free port of this machine, and stop it in the end; yields its URL."""
    options = ["--data", str(data), "--listen", "127.0.0.1:0", "--stomp-listen", "none", "--grpc-listen", "none"]
    command = [sys.executable, "-m", "penstock", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # ourselves
        assert process.stdout is not None  # noqa: S101  # asked for above
        lines = [line.strip() for line in iter(process.stdout.readline, "ready\n") if line]
        try:
            address = next(line.partition("://")[2] for line in lines if line.startswith("native "))
            yield f"penstock://{address}"
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)


async def let_flow(url: str, seconds: float) -> None:
    """Let traffic flow through a broker."""
    async with connect(url) as broker:
        await Traffic(broker, seconds).flow()


def demonstrate(directory: Path, seconds: float) -> Path:
    """Go through all steps; returns the report."""
    lake, page = directory / "lake", directory / "report.html"
    with served(directory / "data") as url:
        print(f"1. A broker runs at {url}. Clients publish and work for {seconds:g} seconds, and some of it fails.")
        asyncio.run(let_flow(url, seconds))
        print(f"2. penstock pipeline run --url {url} --lake {lake}")
        spark = started()
        run(spark, Run(url, str(lake), "demo", _ROWS_PER_BATCH), lambda text: print(f"   {text}"))
    print(f"3. penstock pipeline report --lake {lake} --output {page}")
    write_report(spark, str(lake), page)
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0 when it went well."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.pipeline.jobs.demo", description="See the pipeline at work."
    )
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="how long traffic flows")
    parser.add_argument("--directory", type=Path, help="where broker, lake and report are; else one that stays in /tmp")
    options = parser.parse_args(argv)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="penstock-pipeline-"))
    try:
        page = demonstrate(directory.resolve(), options.seconds)
    except PenstockError as error:
        print(f"\nThe demonstration ended early: {sentence_of(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\nThe report is at {page}. Open it in a browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
