"""Listening addresses: what an option may say, and the sockets for it."""

import errno
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from penstock.model.errors import BadRequest, Unavailable

BACKLOG = 1024
#: A peer of which nothing is heard for a minute is asked whether its machine is still there, and given up after another:
#: what it holds would be held for ever, since most protocols here need not say anything.
_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_PORT_MAX = 65535


@dataclass(slots=True, frozen=True)
class Address:
    """Where to listen."""

    host: str
    port: int
    tls: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether nobody on another machine can get there."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parsed_address(text: str, option: str) -> Address:
    """Read `HOST:PORT`, `[v6]:PORT` or `tls:HOST:PORT`."""
    rest = text.removeprefix("tls:")
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise BadRequest(
            f"{option} is {text!r}; it must be HOST:PORT or tls:HOST:PORT, such as 127.0.0.1:8080, "
            f"with a port of {_PORT_MAX} at most",
            key=option,
        )
    return Address(host, int(port), rest != text)


def bound_socket(address: Address, option: str) -> socket.socket:
    """Return a socket that can listen there, or say in a sentence why there is none."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _ask_whether_alive(listener)
        listener.bind((address.host, address.port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        advice = "; is another program there?" if error.errno == errno.EADDRINUSE else ""
        raise Unavailable(
            f"cannot listen on {address} ({option}): {error.strerror or error}{advice}", key=option
        ) from error
    return listener


def _ask_whether_alive(listener: socket.socket) -> None:
    """Have the system find out when the machine of a peer is gone; connections have it from their listener."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):  # else the system has its own, mostly of hours
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
