"""A load on the native protocol, and what came of it: rates, latencies, losses and duplicates.

One process, no client library: requests are made by formatting, and what arrives is searched by regular expressions or
taken apart by fixed layouts, so that it costs a few microseconds a message and the broker is what is measured. Posts carry a
label, so each is answered once it is on disk. Prints one line of JSON.

    python bench/native_load.py --port 8080 --speech lines --messages 300000 --size 100 --window 500
"""

import argparse
import asyncio
import json
import re
import struct
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple, cast

#: Number and the time of sending; the rest of a body is filling.
_STAMPED = 29
#: One burst of a publisher, so that others get their turn.
_BURST = 256
_PREFACE = b"PSTK\x01"
_HANDSHAKE = (
    "GET /connect/ HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)


class Taken(NamedTuple):
    """What was found in bytes that came, and how far they were used up."""

    numbers: list[int]
    times: list[float]
    sequences: list[int]
    end: int


class Json:
    """JSON, as lines or as text messages."""

    PING, PONG = b'{"type":"ping"}', b'{"type":"pong"}'
    SUBSCRIBED = b'{"type":"ok","label":1}'
    _OK = re.compile(rb'"ok","label":(\d+),"sequence":\d+}')
    _MESSAGE = re.compile(rb'"sequence":(\d+),"body":"(\d{10}) (\d+\.\d{6}) [^}]*}')

    def __init__(self, queue: str, size: int) -> None:
        self._queue = queue.encode()
        self._filling = b"x" * (size - _STAMPED)

    def post(self, number: int, now: float) -> bytes:
        """Return a post."""
        body = b"%010d %017.6f %b" % (number, now, self._filling)
        return b'{"type":"post","queue":"%b","message":"%b","label":%d}' % (self._queue, body, number)

    def finish(self, sequence: int) -> bytes:
        """Return a finish."""
        return b'{"type":"finish","queue":"%b","sequence":%d,"shard":0}' % (self._queue, sequence)

    def subscribe(self, credit: int) -> bytes:
        """Return a subscribe with the label 1."""
        return b'{"type":"subscribe","queue":"%b","credit":%d,"label":1}' % (self._queue, credit)

    def fetch(self, seconds: int) -> bytes:
        """Return a fetch that waits."""
        return b'{"type":"fetch","queue":"%b","block_timeout":%d}' % (self._queue, seconds)

    def oks(self, data: bytes) -> Taken:
        """Find the answers of posts."""
        found, end = [], 0
        for match in self._OK.finditer(data):
            found.append(int(match[1]))
            end = match.end()
        return Taken(found, [], [], end)

    def messages(self, data: bytes) -> Taken:
        """Find messages."""
        taken = Taken([], [], [], 0)
        end = 0
        for match in self._MESSAGE.finditer(data):
            taken.sequences.append(int(match[1]))
            taken.numbers.append(int(match[2]))
            taken.times.append(float(match[3]))
            end = match.end()
        return taken._replace(end=end)


class Bincode:
    """bincode, as frames or as binary messages: all that comes of one kind has the same length."""

    PING, PONG = struct.pack("<IB", 16, 0), struct.pack("<IB", 7, 0)
    SUBSCRIBED = struct.pack("<IBQBIBB", 5, 1, 1, 0, 0, 0, 0)

    def __init__(self, queue: str, size: int, ok_head_bytes: int, head_bytes: int) -> None:
        name = queue.encode()
        self._text = struct.pack("<Q", len(name)) + name
        self._filling = b"x" * (size - _STAMPED)
        self._post_head = struct.pack("<IB", 4, 1) + self._text + struct.pack("<Q", size)
        self._finish_head = struct.pack("<IB", 7, 1) + self._text
        self._ok = struct.Struct(f"<{ok_head_bytes + 5}xQ15x")
        # label, shard, sequence and length; the body; finished, queue, tags, topic, id … published_at
        after = 1 + 1 + len(self._text) + 8 + 1 + 12 + 8 + 1 + 8
        self._message = struct.Struct(f"<{head_bytes + 4 + 9 + 4}xQ8x10sx17s{size - 28 + after}x")

    def post(self, number: int, now: float) -> bytes:
        """Return a post."""
        body = b"%010d %017.6f %b" % (number, now, self._filling)
        return b"%b%b%b%b" % (self._post_head, body, struct.pack("<IBQ", 4, 1, number), bytes(41))

    def finish(self, sequence: int) -> bytes:
        """Return a finish."""
        return self._finish_head + struct.pack("<QI2x", sequence, 0)

    def subscribe(self, credit: int) -> bytes:
        """Return a subscribe with the label 1."""
        named = struct.pack("<IB", 12, 1) + self._text + struct.pack("<BQ", 1, 1)
        return named + struct.pack("<BIBBBBIBI", 0, 0, 0, 0, 0, 0, credit, 0, 0)

    def fetch(self, seconds: int) -> bytes:
        """Return a fetch that waits; its label is there so that all messages have the same layout."""
        return struct.pack("<I", 6) + self._text + struct.pack("<dBIBQBIB", seconds, 0, 0, 1, 1, 0, 0, 0)

    def oks(self, data: bytes) -> Taken:
        """Find the answers of posts."""
        end = len(data) - len(data) % self._ok.size
        return Taken([number for (number,) in self._ok.iter_unpack(data[:end])], [], [], end)

    def messages(self, data: bytes) -> Taken:
        """Find messages."""
        end = len(data) - len(data) % self._message.size
        rows = list(self._message.iter_unpack(data[:end]))
        return Taken([int(row[1]) for row in rows], [float(row[2]) for row in rows], [row[0] for row in rows], end)


class Speech(NamedTuple):
    """A way to carry requests: what comes first, what each is wrapped in, and the language."""

    preface: bytes
    wrap: Callable[[bytes], bytes]
    language: Callable[[str, int], Json | Bincode]


def _line(request: bytes) -> bytes:
    return request + b"\n"


def _frame(request: bytes) -> bytes:
    return struct.pack(">I", len(request)) + request


def _masked(opcode: int, request: bytes) -> bytes:
    size = len(request)
    head = struct.pack(">BB", opcode, 128 + size) if size < 126 else struct.pack(">BBH", opcode, 254, size)
    return head + bytes(4) + request  # masked by nothing


SPEECHES = {
    "lines": Speech(b"", _line, Json),
    "frames": Speech(_PREFACE, _frame, lambda queue, size: Bincode(queue, size, 4, 4)),
    "text": Speech(_HANDSHAKE.format(more="").encode(), lambda one: _masked(0x81, one), Json),
    "binary": Speech(
        _HANDSHAKE.format(more="Binary: true\r\n").encode(),
        lambda one: _masked(0x82, one),
        lambda queue, size: Bincode(queue, size, 2, 4 if size >= 40 else 2),
    ),
}


class Run:
    """What all connections of a run share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.speech = SPEECHES[options.speech]
        self.total: int = options.messages
        self.published = self.confirmed = self.received = self.duplicates = 0
        self.sent_at = array("d", bytes(8 * self.total))
        self.ok_seconds, self.delivery_seconds = array("d"), array("d")
        self.begun_at = self.confirmed_at = self.received_at = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self.seen = bytearray(self.total)

    def look_whether_done(self) -> None:
        """End the run when all is confirmed and received."""
        if self.confirmed >= self.total and self.received >= self.total and not self.done.done():
            self.done.set_result(None)


class Peer(asyncio.Protocol):
    """What publishers and consumers have in common: the first words, and answers in any pieces."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.language = run.speech.language(run.options.name, run.options.size)
        self.ready = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._rest = b""

    @property
    def first(self) -> tuple[bytes, bytes]:
        """The first request, and its answer."""
        return self.language.PING, self.language.PONG

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say the first words."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.run.speech.preface)
        self.say([self.first[0]])

    def connection_lost(self, error: Exception | None) -> None:
        """Complain if it was too early."""
        if not self.run.done.done():
            self.run.done.set_exception(SystemExit(f"the broker closed a connection: {error} {self._rest[:300]!r}"))

    def data_received(self, data: bytes) -> None:
        """Handle what is whole, and keep the rest."""
        data = self._rest + data if self._rest else data
        self._rest = data
        if self.ready.done():
            self._rest = data[self.take(data) :]
        elif data.rstrip(b"\n").endswith(self.first[1]):
            self._rest = b""
            self.ready.set_result(None)
        if b'"error"' in data:
            self.run.done.set_exception(SystemExit(data[:300].decode(errors="replace")))

    def take(self, data: bytes) -> int:
        """Handle answers; returns where the rest begins."""
        raise NotImplementedError

    def say(self, requests: list[bytes]) -> None:
        """Send requests."""
        wrap = self.run.speech.wrap
        self.transport.write(b"".join([wrap(request) for request in requests]))


class Publisher(Peer):
    """Keeps so many messages unconfirmed."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._unconfirmed = 0

    def take(self, data: bytes) -> int:
        """Count confirmations, and go on."""
        run, taken = self.run, self.language.oks(data)
        now = time.monotonic()
        run.ok_seconds.extend([now - run.sent_at[number] for number in taken.numbers])
        self._unconfirmed -= len(taken.numbers)
        run.confirmed += len(taken.numbers)
        if run.confirmed >= run.total and not run.confirmed_at:
            run.confirmed_at = now
            run.look_whether_done()
        self.go_on()
        return taken.end

    def go_on(self) -> None:
        """Post as many as the window allows."""
        run, post = self.run, self.language.post
        room = min(run.options.window - self._unconfirmed, run.total - run.published)
        while room > 0:
            count = min(room, _BURST)
            room -= count
            now = time.monotonic()
            first = run.published
            run.sent_at[first : first + count] = array("d", [now] * count)
            self.say([post(number, now) for number in range(first, first + count)])
            run.published += count
            self._unconfirmed += count


class Consumer(Peer):
    """Finishes each message that its subscription brings, or that it fetches, one by one."""

    @property
    def first(self) -> tuple[bytes, bytes]:
        """The first request, and its answer."""
        if self.run.options.fetch:
            return super().first
        return self.language.subscribe(self.run.options.credit), self.language.SUBSCRIBED

    def take(self, data: bytes) -> int:
        """Finish and count."""
        run, taken = self.run, self.language.messages(data)
        if not taken.sequences:
            return taken.end
        now = time.monotonic()
        requests = [self.language.finish(sequence) for sequence in taken.sequences]
        if run.options.fetch:
            requests.append(self.language.fetch(60))
        self.say(requests)
        run.delivery_seconds.extend([now - at for at in taken.times])
        for number in taken.numbers:
            run.duplicates += run.seen[number]
            run.seen[number] = 1
        run.received += len(taken.numbers)
        if run.received >= run.total:
            run.received_at = now
            run.look_whether_done()
        return taken.end


def quantile(values: list[float], part: float) -> float | None:
    """Return a quantile of sorted values, in milliseconds."""
    return round(values[min(int(len(values) * part), len(values) - 1)] * 1000, 3) if values else None


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """Run a load, and return what came of it."""
    run = Run(options)
    loop = asyncio.get_running_loop()
    consumers = [Consumer(run) for _ in range(options.consumers)]
    publishers = [Publisher(run) for _ in range(options.publishers)]
    for peer in [*consumers, *publishers]:
        await loop.create_connection(lambda peer=peer: peer, options.host, options.port)  # type: ignore[misc]
        await asyncio.wait_for(peer.ready, 30)
    run.begun_at = time.monotonic()
    for publisher in publishers:
        publisher.go_on()
    if options.fetch:
        for consumer in consumers:
            consumer.say([consumer.language.fetch(60)])
    try:
        await asyncio.wait_for(run.done, options.limit)
    except TimeoutError:
        sys.exit(f"not done after {options.limit} s: {run.confirmed} confirmed, {run.received} of {run.total} received")
    deliveries, oks = sorted(run.delivery_seconds), sorted(run.ok_seconds)
    return {
        "confirmed_per_second": round(run.total / (run.confirmed_at - run.begun_at)),
        "received_per_second": round(run.total / (run.received_at - run.begun_at)),
        "duplicates": run.duplicates,
        "delivery_ms_p50": quantile(deliveries, 0.5),
        "delivery_ms_p99": quantile(deliveries, 0.99),
        "ok_ms_p50": quantile(oks, 0.5),
        "ok_ms_p99": quantile(oks, 0.99),
        "load_cpu_us": round(time.process_time() / run.total * 1e6, 2),
    }


def parsed_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--speech", choices=SPEECHES, default="lines")
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body, at least 29")
    parser.add_argument("--window", type=int, default=500, help="unconfirmed messages of one publisher")
    parser.add_argument("--credit", type=int, default=500)
    parser.add_argument("--fetch", action="store_true", help="fetch one message at a time instead of subscribing")
    parser.add_argument("--name", default="load")
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
