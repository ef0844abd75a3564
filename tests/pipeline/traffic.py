"""Traffic for the pipeline's tests, and what the broker's journal holds of it, read without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import sync
from penstock.pipeline.log_client import LogClient
from penstock.store.journal import Journal
from penstock.store.port import Batch
from tests.served import Served


def url(served: Served) -> str:
    """Return the address of the broker's general port."""
    host, port = served.native
    return f"http://{host}:{port}"


@contextmanager
def connected(served: Served) -> Iterator[sync.Broker]:
    """Connect to a broker."""
    host, port = served.native
    with sync.connect(f"penstock://{host}:{port}") as broker:
        yield broker


def mixed(served: Served, count: int = 40) -> None:
    """Publish to queues and a topic, and finish, fail and release some of it."""
    with connected(served) as broker, broker.subscribe(topic="news", durable="archive") as subscription:
        for number in range(count):
            headers = {"number": str(number)} if number % 3 else {}
            broker.enqueue("orders", b"order %d" % number, tags=["eu"], headers=headers, priority=number % 4)
            broker.enqueue("plain", b"\xff\x00%d" % number)
        broker.publish("news", b"hello")
        broker.complete(next(subscription))
        for number in range(count // 2):
            message = broker.poll("orders", tags=["eu"])
            assert message is not None
            if number % 3 == 0:
                broker.fail(message, reason=f"failure {number % 2}")
            elif number % 3 == 1:
                broker.release(message)
            else:
                broker.complete(message)
        broker.pop("plain")


def client_of(served: Served) -> LogClient:
    """Return what asks a broker for its log."""
    return LogClient(url(served))


def journalled(served: Served) -> list[Batch]:
    """Stop a broker, and return all that its journal holds."""
    served.stop()
    journal = Journal(Path(served.data))
    try:
        return list(journal.open().batches) if journal.log is None else _all(journal)
    finally:
        journal.close()


def _all(journal: Journal) -> list[Batch]:
    list(journal.open().batches)
    return list(journal.read(0, 2**62))


def bodies(rows: list[Any]) -> list[bytes]:
    """Return the bodies of rows."""
    return [bytes(row["body"]) for row in rows]
