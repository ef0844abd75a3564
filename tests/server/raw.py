"""Peers that know nothing but bytes: sockets, HTTP responses, frames of WebSockets, all by hand."""

import base64
import contextlib
import os
import re
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.conftest import require
from tests.served import PATIENCE, Address, Served

CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


class Certificate(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """What the broker is told."""
        return "--tls-cert", str(self.certificate), "--tls-key", str(self.key)


class Response(NamedTuple):
    """What HTTP answered."""

    status: int
    headers: dict[str, str]
    body: bytes


class Frame(NamedTuple):
    """A frame of a WebSocket."""

    first: int
    payload: bytes


class Raw:
    """A connection."""

    def __init__(self, address: Address, certificate: Certificate | None = None) -> None:
        self.socket = socket.create_connection(address, PATIENCE)
        if certificate is not None:
            context = ssl.create_default_context(cafile=certificate.certificate)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> Self:
        """Send bytes."""
        self.socket.sendall(data)
        return self

    def rest(self) -> bytes:
        """Return all that comes until the server ends; a connection that is cut ends too."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.file.read1(1 << 16):
                found += piece
        return found

    def until(self, mark: bytes) -> bytes:
        """Return all that comes until a mark, which is the last of it."""
        found = b""
        while not found.endswith(mark):
            piece = self.file.read(1)
            assert piece, f"the connection ended after {found!r}"
            found += piece
        return found

    def response(self, *, to_head: bool = False) -> Response:
        """Return the next response of HTTP."""
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")[:-2]
        status = int(lines[0].split(" ")[1])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        body = b"" if to_head or status < 200 else self.file.read(int(headers["content-length"]))
        return Response(status, headers, body)

    def upgrade(self, path: str, *headers: str) -> Response:
        """Ask for a WebSocket."""
        return self.send(upgrade(path, *headers)).response()

    def frame(self) -> Frame:
        """Return the next frame of a WebSocket."""
        first, length = self.file.read(2)
        if length >= 126:
            length = int.from_bytes(self.file.read(2 if length == 126 else 8))
        return Frame(first, self.file.read(length))

    def close(self) -> None:
        """Close, without a word."""
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def upgrade(path: str, *headers: str) -> bytes:
    """Return a request for a WebSocket."""
    key = base64.b64encode(bytes(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", *headers]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""]
    return "\r\n".join(lines).encode()


def when_there_is_room(connect: Callable[[], Raw]) -> Raw:
    """Return a connection as soon as the server lets one in; `connect` raises while it does not."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return connect()
        except OSError:
            assert time.monotonic() < until, "there is still no room"


def peak_bytes(served: Served) -> int:
    """Return how much memory a broker has had at most."""
    status = Path(f"/proc/{served.process.pid}/status")
    require(status.exists(), "this system does not tell how much memory a process has")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) * 1024


def masked(first: int, payload: bytes = b"", mask: bytes | None = None) -> bytes:
    """Return a frame as clients send it: `first` has the opcode and the bits beside it."""
    mask = os.urandom(4) if mask is None else mask
    if len(payload) < 126:
        length = bytes([0x80 | len(payload)])
    elif len(payload) < 1 << 16:
        length = b"\xfe" + len(payload).to_bytes(2)
    else:
        length = b"\xff" + len(payload).to_bytes(8)
    return bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
