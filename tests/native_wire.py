"""The native protocol by hand for tests of the server: lines, frames, and messages of a WebSocket by another's library.

with open_wire(served, "lines") as wire:
    assert wire.ask("ping", label=1) == {"type": "pong", "label": 1}
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
import websocket

from penstock.protocols.native import bincode
from penstock.protocols.native.json import shown_body
from penstock.protocols.native.messages import AnyRequest, Delivery
from tests.served import PATIENCE, Address, Served

Answer = dict[str, Any]
WIRES = ("lines", "frames", "text", "binary")


class Wire:
    """What all of them can do; hello is taken at the beginning."""

    id = ""

    def send(self, payload: bytes) -> None:
        """Send one request."""
        raise NotImplementedError

    def receive(self) -> bytes:
        """Return the next answer, b"" at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection without a word."""
        raise NotImplementedError

    def encoded(self, given: Answer) -> bytes:
        """Return a request as bytes."""
        return json.dumps(given).encode()

    def decoded(self, data: bytes) -> Answer:
        """Return an answer as JSON has it."""
        found: Answer = json.loads(data)
        return found

    def greeted(self) -> Self:
        """Take hello."""
        hello = self.take()
        assert hello["type"] == "hello", hello
        self.id = hello["id"]
        return self

    def say(self, request: str, **fields: object) -> Self:
        """Send a request."""
        self.send(self.encoded({"type": request, **fields}))
        return self

    def take(self) -> Answer:
        """Return the next answer."""
        data = self.receive()
        assert data, "the connection ended"
        return self.decoded(data)

    def ask(self, request: str, **fields: object) -> Answer:
        """Send a request, and return the next answer."""
        return self.say(request, **fields).take()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Lines(Wire):
    """JSON, a line each."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, PATIENCE)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b" ")  # hello comes when the first bytes have told the language
        self.send(b"{}")
        self.greeted()
        assert self.take()["key"] == "type"

    def send(self, payload: bytes) -> None:
        """Send one request."""
        self.socket.sendall(payload + b"\n")

    def receive(self) -> bytes:
        """Return the next answer."""
        return self.file.readline()

    def close(self) -> None:
        """End the connection without a word."""
        self.file.close()
        self.socket.close()


class _Bincode(Wire):
    def encoded(self, given: Answer) -> bytes:
        """Return a request as bytes."""
        return bincode.written(msgspec.convert(given, AnyRequest))

    def decoded(self, data: bytes) -> Answer:
        """Return an answer as JSON has it."""
        answer = bincode.read_answer(data)
        if isinstance(answer, Delivery):
            answer = msgspec.structs.replace(answer, body=shown_body(answer.body))  # type: ignore[arg-type]  # as bincode has it
        found: Answer = json.loads(msgspec.json.encode(answer))
        return found


class Frames(_Bincode):
    """bincode, after the preface."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, PATIENCE)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"PSTK\x01")
        self.greeted()

    def send(self, payload: bytes) -> None:
        """Send one request."""
        self.socket.sendall(len(payload).to_bytes(4, "big") + payload)

    def receive(self) -> bytes:
        """Return the next answer."""
        return self.file.read(int.from_bytes(self.file.read(4), "big"))

    def close(self) -> None:
        """End the connection without a word."""
        self.file.close()
        self.socket.close()


class Text(Wire):
    """Text messages of a WebSocket."""

    def __init__(self, url: str, **headers: str) -> None:
        self.socket = websocket.create_connection(url, timeout=PATIENCE, header=headers)
        self.greeted()

    def send(self, payload: bytes) -> None:
        """Send one request."""
        self.socket.send(payload.decode())

    def receive(self) -> bytes:
        """Return the next answer."""
        with contextlib.suppress(websocket.WebSocketConnectionClosedException):
            data = self.socket.recv()
            return data if isinstance(data, bytes) else data.encode()
        return b""

    def close(self) -> None:
        """End the connection without a word."""
        self.socket.shutdown()


class Binary(_Bincode, Text):
    """Binary messages of a WebSocket."""

    def __init__(self, url: str) -> None:
        Text.__init__(self, url, Binary="true")

    def send(self, payload: bytes) -> None:
        """Send one request."""
        self.socket.send_binary(payload)


def open_wire(served: Served, carrier: str) -> Wire:
    """Connect by one of the carriers."""
    if carrier in {"lines", "frames"}:
        return Lines(served.native) if carrier == "lines" else Frames(served.native)
    url = served.websocket("/connect/")
    return Text(url) if carrier == "text" else Binary(url)


@contextlib.contextmanager
def wires(served: Served, *carriers: str) -> Iterator[list[Wire]]:
    """Connect by several of them."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open_wire(served, carrier)) for carrier in carriers]
