"""TLS: the context of all doors that have it, and connections on their way into it."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.model.errors import BadRequest
from penstock.server.house import House

LOG = logging.getLogger("penstock.tls")
#: Between two tries to accept somebody where the system has no files or memory for it.
PAUSE_SECONDS = 1.0


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context with a certificate (and those between it and a known root) and its key, or say what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # of version 1.2 or later
    for path, option in ((certificate, "--tls-cert"), (key, "--tls-key")):
        try:
            path.read_bytes()
        except OSError as error:
            raise BadRequest(f"{option}: {path} cannot be read: {error.strerror}", key=option) from None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise BadRequest(
            f"--tls-cert {certificate} and --tls-key {key} do not make a certificate with its key: {reason}",
            key="--tls-cert",
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Give none instead of asking at the terminal, where nobody may be."""
    return ""


class TlsDoor:
    """A listener whose connections shake hands first.

    They are guests from then on, so that halves of handshakes have their limit too: the event loop, which could accept by
    itself, takes any number of them, and files for the journal would run out.
    """

    def __init__(
        self, house: House, listener: socket.socket, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self._house = house
        self._listener = listener
        self._context = context
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept nobody any more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it has gone again
            return
        except OSError as error:  # whoever waits to be accepted would have this called again and again
            LOG.warning("nobody can be accepted for now: %s", error.strerror)
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._listen)
            return
        if not self._house.has_room:
            connection.close()  # what could be told would have to be secret already
            return
        connection.setblocking(False)
        handshake = Handshake(self._loop.create_task(self._shake(connection)))
        self._house.guests.add(handshake)
        handshake.task.add_done_callback(lambda _: self._house.guests.discard(handshake))

    async def _shake(self, connection: socket.socket) -> None:
        seconds = self._house.limits.first_bytes_seconds
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except OSError as error:  # those of TLS too, and its time being up
            LOG.info("a TLS handshake failed: %s", error)


class Handshake(NamedTuple):
    """A connection that is not secret yet."""

    task: asyncio.Task[None]

    def stop(self) -> None:
        """Close; nothing is held."""
        self.task.cancel()
