"""Connections that speak HTTP/1.1: one request after the other, each answered before the next is looked at."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from email.utils import formatdate
from http import HTTPStatus
from math import inf
from typing import Protocol, cast
from urllib.parse import parse_qs

import h11

from penstock.model.errors import BadRequest, PenstockError, TooLarge
from penstock.server.farewell import Farewell
from penstock.server.house import House
from penstock.server.http.messages import Request, Response, error_response
from penstock.server.http.router import refusal
from penstock.server.wheel import Timed

LOG = logging.getLogger("penstock.http")
#: While answering, what the peer sends ahead: a request or two.
_SENT_AHEAD_BYTES_MAX = 64 * 2**10


class Switch(Exception):  # it is no error: the answer is another protocol
    """Raised by whoever answers a request by going on as a WebSocket."""

    def __init__(self, headers: list[tuple[str, str]], make: Callable[[], asyncio.Protocol]) -> None:
        super().__init__()
        self.headers = headers
        self.make = make


class Answering(Protocol):
    """Answers requests. `penstock.server.http.site.Site` does."""

    async def answer(self, request: Request) -> Response:
        """Answer a request; raises an error that the peer is told, or `Switch`."""


class HttpConnection(asyncio.Protocol, Timed):
    """See the module."""

    __slots__ = ("_body", "_can_write", "_head", "_house", "_http", "_is_paused", "_site", "_task", "_transport")

    def __init__(self, house: House, site: Answering) -> None:
        Timed.__init__(self)
        self._house = house
        self._site = site
        self._http = h11.Connection(h11.SERVER, house.limits.http_head_bytes_max)
        self._transport: asyncio.Transport
        #: The request that is coming.
        self._head: h11.Request | None = None
        self._body = bytearray()
        #: The request that is being answered.
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._house.guests.add(self)
        self._wait(self._house.limits.http_request_seconds)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._http.receive_data(data)
        if self._task is None:
            self._read_safely()
        elif len(self._http.trailing_data[0]) > _SENT_AHEAD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Answer what was asked; a peer that has nothing more to say may still listen, if it is not TLS."""
        if self._task is None or self._transport.get_extra_info("ssl_object") is not None:
            return False
        self._http.receive_data(b"")
        return True

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """Stop answering."""
        self._leave()
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Have answers wait."""
        self._can_write.clear()
        self._wait(self._house.limits.stalled_seconds)

    def resume_writing(self) -> None:
        """Have answers go on."""
        self._can_write.set()
        self._house.wheel.put(self, inf)

    def turn(self, now: float) -> float:  # noqa: ARG002  # there is one time only, and it has come
        """Give up a peer that was waited for long enough."""
        if not self._can_write.is_set():
            self._transport.abort()
        elif self._head is None and not self._http.trailing_data[0]:
            self._transport.close()
        else:
            self._refuse(error_response(_late(self._house.limits.http_request_seconds), HTTPStatus.REQUEST_TIMEOUT))
        return inf

    def stop(self) -> None:
        """Close; nothing is held. Whoever is still there when it is told again does not read what it asked for."""
        if self._transport.is_closing():
            self._transport.abort()
        else:
            self._transport.close()

    def _wait(self, seconds: float) -> None:
        """Have a turn if nothing else happens until then."""
        self._house.wheel.put(self, self._house.now() + seconds)

    def _read_safely(self) -> None:
        """Take what has come, and refuse what is wrong with it."""
        try:
            self._read()
        except h11.RemoteProtocolError as error:
            self._refuse(_misread(error, self._house.limits.http_head_bytes_max))
        except PenstockError as error:
            self._refuse(error_response(error))

    def _read(self) -> None:
        """Take what has come, and answer a request that is whole."""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                return
            if isinstance(event, h11.Request):
                self._head = event
                self._check_length(int(dict(event.headers).get(b"content-length", 0)))
                self._wait(self._house.limits.http_request_seconds)
            elif isinstance(event, h11.Data):
                self._take(event.data)
            elif isinstance(event, h11.EndOfMessage) and self._head is not None:
                request = _request(self._head, bytes(self._body))
                self._house.wheel.put(self, inf)
                self._task = asyncio.get_running_loop().create_task(self._answer(request))
                return
            else:  # the connection is over, or waits for its answer
                if event is not h11.PAUSED:
                    self._transport.close()
                return

    def _take(self, data: bytes) -> None:
        self._body += data
        self._check_length(len(self._body))

    def _check_length(self, size: int) -> None:
        limit = self._house.limits.http_body_bytes_max
        if size > limit:
            raise TooLarge(
                f"the body of a request may have {limit} bytes at most (http_body_bytes_max)", key="body", limit=limit
            )

    async def _answer(self, request: Request) -> None:
        try:
            await self._send(request, await self._response(request))
        except Switch as switch:
            self._switch(switch)
        except PenstockError as error:
            LOG.warning("the answer to %s %s broke off: %s", request.method, request.path, error)
            self._refuse(error_response(error))
        except Exception:
            LOG.exception("%s %s could not be answered", request.method, request.path)
            self._refuse(error_response(PenstockError("the broker made a mistake here; its log has more"), 500))
        else:
            self._go_on()

    async def _response(self, request: Request) -> Response:
        try:
            return await self._site.answer(request)
        except PenstockError as error:
            return refusal(error)

    def _go_on(self) -> None:
        """Look at what came next."""
        self._task = None
        if self._transport.is_closing():
            return
        if self._http.our_state is h11.MUST_CLOSE:
            self._end()
            return
        self._http.start_next_cycle()
        self._head, self._body = None, bytearray()
        self._wait(self._house.limits.http_idle_seconds)
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._read_safely()

    async def _send(self, request: Request, response: Response) -> None:
        """Send a response, as fast as the peer reads."""
        body, length = response.body, response.length
        if isinstance(body, bytes):
            length = len(body)
        size = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
        self._write(_response_head(response, size))
        if request.method == "HEAD":
            pass
        elif isinstance(body, bytes):
            self._write(h11.Data(data=body))
        else:
            await self._send_pieces(body)
        self._write(h11.EndOfMessage())
        await self._can_write.wait()

    async def _send_pieces(self, pieces: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(pieces):
            async for piece in pieces:
                self._write(h11.Data(data=piece))
                await self._can_write.wait()

    def _refuse(self, response: Response) -> None:
        """Answer with an error, and close: what follows cannot be told apart any more."""
        if self._transport.is_closing():
            return
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = cast("bytes", response.body)
            self._write(_response_head(response, ("Content-Length", str(len(body))), ("Connection", "close")))
            if self._head is None or self._head.method != b"HEAD":
                self._write(h11.Data(data=body))
            self._write(h11.EndOfMessage())
        self._end()

    def _end(self) -> None:
        """Say nothing more."""
        self._leave()
        Farewell(self._house, self._transport)

    def _leave(self) -> None:
        self._house.guests.discard(self)
        self._house.wheel.drop(self)

    def _switch(self, switch: Switch) -> None:
        """Go on as a WebSocket, with a peer that has more to say."""
        rest, is_over = self._http.trailing_data
        if is_over or self._transport.is_closing():
            self._transport.close()
            return
        status = HTTPStatus.SWITCHING_PROTOCOLS
        headers = [*switch.headers, *_ALWAYS]
        self._write(h11.InformationalResponse(status_code=status, headers=headers, reason=status.phrase))
        self._leave()
        if self._is_paused:
            self._transport.resume_reading()
        protocol = switch.make()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and not self._transport.is_closing():
            self._transport.write(data)


#: Pages of others may not look in, and nobody keeps what is true for a moment only.
_ALWAYS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


def _response_head(response: Response, *more: tuple[str, str]) -> h11.Response:
    """Return what goes before a body."""
    reason = HTTPStatus(response.status).phrase
    headers = [*response.headers, *_ALWAYS, *more, ("Date", formatdate(usegmt=True))]
    return h11.Response(status_code=response.status, headers=headers, reason=reason)


def _request(head: h11.Request, body: bytes) -> Request:
    path, _, query = head.target.decode("ascii", errors="replace").partition("?")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if head.target.startswith(b"http"):  # as proxies are asked
        path = "/" + path.partition("//")[2].partition("/")[2]
    try:
        options = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise BadRequest(
            "the query cannot be read: it is not UTF-8, or has more than 100 options", key="query"
        ) from None
    return Request(head.method.decode("ascii"), path, options, headers, body)


def _misread(error: h11.RemoteProtocolError, head_bytes_max: int) -> Response:
    """Answer what is no HTTP; the library's text begins with what it stumbled over."""
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        text = f"a request may have {head_bytes_max} bytes at most before its body (http_head_bytes_max)"
        return error_response(TooLarge(text, key="http", limit=head_bytes_max), error.error_status_hint)
    text = f"this is not HTTP/1.1: {str(error).partition(':')[0]}"
    return error_response(BadRequest(text, key="http"), error.error_status_hint)


def _late(seconds: float) -> BadRequest:
    return BadRequest(f"the request was not there whole within {seconds:g} seconds (http_request_seconds)", key="http")
