"""A load on any STOMP 1.2 broker, and what came of it: rates, latencies, losses, duplicates and order.

One process, no STOMP library: frames are made by formatting, and what arrives is searched by regular expressions, so that
it costs a few microseconds a message and the broker is what is measured. Prints one line of JSON.

    python bench/stomp_load.py --port 61613 --publishers 1 --consumers 1 --messages 300000 --size 100 --window 500
"""

import argparse
import asyncio
import json
import re
import sys
import time
from array import array
from typing import Any, cast

#: Number, then the time of sending; the rest of a body is filling.
_STAMP = re.compile(rb"\n\n(\d{10}) (\d+\.\d{6}) ")
_STAMPED = 29
_ACK = re.compile(rb"\nack:([^\n]*)\n")
_RECEIPT = re.compile(rb"receipt-id:(\d+)\n")
#: One burst of a publisher, so that others get their turn.
_BURST = 256


class Run:
    """What all connections of a run share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.total: int = options.messages
        self.expected = self.total * (options.consumers if options.topic else 1) if options.consumers else 0
        self.published = self.confirmed = self.received = self.duplicates = self.disordered = 0
        self.sent_at = array("d", bytes(8 * self.total))
        self.receipt_seconds = array("d")
        self.delivery_seconds = array("d")
        self.begun_at = self.confirmed_at = self.received_at = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self.seen = bytearray(self.total)

    def look_whether_done(self) -> None:
        """End the run when all is confirmed and received."""
        if self.confirmed >= self.total and self.received >= self.expected and not self.done.done():
            self.done.set_result(None)

    def fail(self, text: str) -> None:
        """End the run badly."""
        if not self.done.done():
            self.done.set_exception(SystemExit(text))


class Peer(asyncio.Protocol):
    """What publishers and consumers have in common: the login, and frames in any pieces."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        options = run.options
        of = f"{number % options.queues}" if options.queues > 1 else ""
        self.destination = f"/{'topic' if options.topic else 'queue'}/{options.name}{of}".encode()
        self.ready = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Log in."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")

    def connection_lost(self, error: Exception | None) -> None:
        """Complain if it was too early."""
        self.run.fail(f"the broker closed a connection: {error}")

    def data_received(self, data: bytes) -> None:
        """Handle whole frames."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\0") + 1
        if data.rfind(b"MESSAGE\n", 0, end) < 0 or not self.ready.done():
            self._rest = data[end:]
            if end:
                self.take(data[:end])
            return
        self._rest = data[end:]  # bodies have no NUL
        self.take(data[:end])

    def take(self, data: bytes) -> None:
        """Handle frames."""
        if b"ERROR\n" in data:
            self.run.fail(data.decode(errors="replace")[:500])


class Publisher(Peer):
    """Keeps so many messages unconfirmed."""

    def __init__(self, run: Run, number: int) -> None:
        super().__init__(run, number)
        self.unconfirmed = 0

    def take(self, data: bytes) -> None:
        """Count receipts, and go on."""
        super().take(data)
        run = self.run
        if not self.ready.done():
            self.ready.set_result(None)
            return
        now = time.monotonic()
        receipts = _RECEIPT.findall(data)
        run.receipt_seconds.extend([now - run.sent_at[int(number)] for number in receipts])
        self.unconfirmed -= len(receipts)
        run.confirmed += len(receipts)
        if run.confirmed >= run.total and not run.confirmed_at:
            run.confirmed_at = now
            run.look_whether_done()
        self.go_on()

    def go_on(self) -> None:
        """Send as many as the window allows."""
        run, options = self.run, self.run.options
        room = min(options.window - self.unconfirmed, run.total - run.published)
        while room > 0:
            count = min(room, _BURST)
            room -= count
            now = time.monotonic()
            first = run.published
            filling = b"x" * max(0, options.size - _STAMPED)
            size = _STAMPED + len(filling)
            frames = []
            for number in range(first, first + count):
                run.sent_at[number] = now
                frames.append(
                    b"SEND\ndestination:%b\ncontent-length:%d\n%breceipt:%d\n\n%010d %017.6f %b\0"
                    % (self.destination, size, options.header, number, number, now, filling)
                )
            run.published += count
            self.unconfirmed += count
            self.transport.write(b"".join(frames))


class Consumer(Peer):
    """Acknowledges each message."""

    def __init__(self, run: Run, number: int) -> None:
        super().__init__(run, number)
        self.last = -1
        self.is_subscribed = False

    def take(self, data: bytes) -> None:
        """Acknowledge and count."""
        super().take(data)
        run, options = self.run, self.run.options
        if not self.ready.done():
            if b"CONNECTED\n" in data:
                mode = "auto" if options.topic else "client-individual"
                self.transport.write(
                    b"SUBSCRIBE\nid:0\ndestination:%b\nack:%b\nprefetch-count:%d\nreceipt:0\n\n\0"
                    % (self.destination, mode.encode(), options.prefetch)
                )
            if b"RECEIPT\n" in data:
                self.ready.set_result(None)
            return
        now = time.monotonic()
        stamps = _STAMP.findall(data)
        if not options.topic:
            self.transport.write(b"".join([b"ACK\nid:%b\n\n\0" % ack for ack in _ACK.findall(data)]))
        run.delivery_seconds.extend([now - float(at) for _, at in stamps])
        run.received += len(stamps)
        self._check([int(number) for number, _ in stamps])
        if run.received >= run.expected:
            run.received_at = now
            run.look_whether_done()

    def _check(self, numbers: list[int]) -> None:
        run = self.run
        if run.options.topic:
            for number in numbers:
                run.disordered += number != self.last + 1
                self.last = number
            return
        for number in numbers:
            run.duplicates += run.seen[number]
            run.seen[number] = 1


def quantile(values: Any, part: float) -> float | None:
    """Return a quantile of sorted values, in milliseconds."""
    return round(values[min(int(len(values) * part), len(values) - 1)] * 1000, 3) if values else None


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """Run a load, and return what came of it."""
    run = Run(options)
    loop = asyncio.get_running_loop()
    peers: list[Peer] = [Consumer(run, number) for number in range(options.consumers)]
    publishers = [Publisher(run, number) for number in range(options.publishers)]
    for peer in [*peers, *publishers]:
        await loop.create_connection(lambda peer=peer: peer, options.host, options.port)  # type: ignore[misc]
        await asyncio.wait_for(peer.ready, 30)
    run.begun_at = time.monotonic()
    for publisher in publishers:
        publisher.go_on()
    try:
        await asyncio.wait_for(run.done, options.limit)
    except TimeoutError:
        sys.exit(
            f"not done after {options.limit} s: {run.confirmed} confirmed, {run.received} of {run.expected} received"
        )
    deliveries, receipts = sorted(run.delivery_seconds), sorted(run.receipt_seconds)
    return {
        "confirmed_per_second": round(run.total / (run.confirmed_at - run.begun_at)),
        "received_per_second": round(run.expected / (run.received_at - run.begun_at)) if run.expected else 0,
        "duplicates": run.duplicates,
        "disordered": run.disordered,
        "delivery_ms_p50": quantile(deliveries, 0.5),
        "delivery_ms_p99": quantile(deliveries, 0.99),
        "receipt_ms_p50": quantile(receipts, 0.5),
        "receipt_ms_p99": quantile(receipts, 0.99),
        "load_cpu_us": round(time.process_time() / run.total * 1e6, 2),
    }


def parsed_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--queues", type=int, default=1, help="spread over so many queues")
    parser.add_argument("--topic", action="store_true", help="a topic of which each consumer gets all, ack:auto")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body, at least 29")
    parser.add_argument("--window", type=int, default=500, help="unconfirmed messages of one publisher")
    parser.add_argument("--prefetch", type=int, default=500)
    parser.add_argument("--name", default="load")
    parser.add_argument("--header", type=lambda text: f"{text}\n".encode(), default=b"", help="one more header of SEND")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which it is given up")
    return parser.parse_args(arguments)


def main() -> None:
    """Run a load and print the result."""
    options = parsed_options()
    try:
        import uvloop  # noqa: PLC0415  # it is not there on every platform
    except ImportError:
        result = asyncio.run(load(options))
    else:
        result = uvloop.run(load(options))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
