"""The site behind the general port: who may ask, what is answered by which handler, and where WebSockets begin."""

import asyncio
import base64
import binascii
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.model.access import Access
from penstock.model.errors import BadRequest, NoObject, PenstockError, PermissionDenied
from penstock.protocols.door import Carrier, Greeting, MessageSession, Session
from penstock.server.house import House
from penstock.server.http.connection import Switch
from penstock.server.http.messages import Request, Response, error_response
from penstock.server.http.router import Router, refusal
from penstock.server.login import Logins
from penstock.server.websocket.connection import MessageWebSocket, StreamWebSocket
from penstock.server.websocket.handshake import VERSION, accepted, is_upgrade

#: What a page of another origin may send, for a browser that asks beforehand.
_BEFOREHAND = [
    ("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
    ("Access-Control-Max-Age", "600"),
]
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(slots=True, frozen=True)
class WebSocketRoute:
    """What is said on WebSockets at a path: one of the two."""

    stream: Callable[[Carrier], Session] | None = None
    messages: Callable[[Carrier, Greeting], MessageSession] | None = None
    subprotocols: tuple[str, ...] = ()


class Site:
    """See the module."""

    def __init__(self, house: House, logins: Logins, origins: frozenset[str]) -> None:
        self._house = house
        self._logins = logins
        #: Origins whose pages may come although they are of others; `*` stands for all.
        self._origins = origins
        self.router = Router()
        self.websockets: dict[str, WebSocketRoute] = {}

    async def answer(self, request: Request) -> Response:
        """Answer a request; raises an error that the peer is told, or `Switch`."""
        self._check_origin(request)
        origin = request.headers.get("origin")
        if origin is None:
            return await self._answered(request)
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return Response(HTTPStatus.NO_CONTENT, [*_BEFOREHAND, *_may_read(origin)])
        try:
            response = await self._answered(request)
        except PenstockError as error:
            response = refusal(error)
        response.headers += _may_read(origin)
        return response

    async def _answered(self, request: Request) -> Response:
        websocket = self.websockets.get(request.path)
        if websocket is not None:
            return await self._open(request, websocket)
        route = self.router.find(request)
        if not route.is_open:
            request.access = await self._login(request)
        response = route.handler(request)
        return response if isinstance(response, Response) else await response

    async def _open(self, request: Request, route: WebSocketRoute) -> Response:
        """Begin a WebSocket."""
        if request.method != "GET" or not is_upgrade(request.headers):
            response = error_response(BadRequest("a WebSocket begins here: GET with `Upgrade: websocket`"), 426)
            response.headers.append(("Upgrade", "websocket"))
            return response
        if request.headers.get("sec-websocket-version") != VERSION:
            response = error_response(BadRequest("WebSockets of version 13 alone are spoken here"), 426)
            response.headers.append(("Sec-WebSocket-Version", VERSION))
            return response
        handshake = accepted(request.headers, route.subprotocols)
        house, window_bits = self._house, handshake.window_bits
        make: Callable[[], asyncio.Protocol]
        if route.messages is not None:
            is_known = "authorization" in request.headers or not self._logins.is_needed
            greeting = Greeting(request.headers, await self._login(request) if is_known else None)
            make = partial(MessageWebSocket, partial(_with, route.messages, greeting), house, window_bits)
        elif route.stream is not None:
            make = partial(StreamWebSocket, route.stream, house, window_bits)
        else:
            raise NoObject(f"nothing is spoken at {request.path}", key="path")
        raise Switch(handshake.headers, make)

    async def _login(self, request: Request) -> Access:
        """Return what the peer may do, by its header `Authorization: Basic`."""
        user, secret = _credentials(request.headers.get("authorization"))
        answered: Future[Access | PenstockError] = asyncio.get_running_loop().create_future()
        self._logins.check(user, secret, partial(_resolve, answered))
        access = await answered
        if isinstance(access, PenstockError):
            raise access
        return access

    def _check_origin(self, request: Request) -> None:
        """Refuse pages of others: a browser sends them with whatever its user may do, from within its network."""
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if "*" in self._origins or (origin is not None and origin.lower() in self._origins):
            return
        if origin is not None and not _is_same(origin.lower(), host.lower()):
            raise PermissionDenied(
                f"pages of {origin[:200]} may not come in; --allow-origin lets them", key="origin", origin=origin
            )
        if not self._logins.is_needed and not _is_own(host) and not self._is_let_in(host.lower()):
            raise PermissionDenied(
                f"this is not {host[:200]}: without users this broker answers to localhost and to addresses alone, since "
                "any page can give its name to this machine; --allow-origin lets a name in",
                key="host",
            )

    def _is_let_in(self, host: str) -> bool:
        return any(_is_same(origin, host) for origin in self._origins)


def _may_read(origin: str) -> list[tuple[str, str]]:
    """Return what has a browser show the answer to the page that asked, which was let in."""
    return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]


def _with(make: Callable[[Carrier, Greeting], MessageSession], greeting: Greeting, carrier: Carrier) -> MessageSession:
    return make(carrier, greeting)


def _resolve(answered: "Future[Access | PenstockError]", access: Access | PenstockError) -> None:
    if not answered.done():
        answered.set_result(access)


def _credentials(header: str | None) -> tuple[str | None, str | None]:
    """Return user and secret."""
    if header is None:
        return None, None
    scheme, _, text = header.partition(" ")
    try:
        if scheme.lower() == "basic":
            user, colon, secret = base64.b64decode(text.strip(), validate=True).decode().partition(":")
            if colon:
                return user, secret
    except (binascii.Error, ValueError):
        pass
    raise BadRequest("the header Authorization has to be Basic, then user:secret in base64", key="authorization")


def _is_same(origin: str, host: str) -> bool:
    """Tell whether a page of this origin came from this very host and port."""
    try:
        page, own = urlsplit(origin), urlsplit(f"//{host}")
        standard = _PORTS.get(page.scheme)
        return (page.hostname, page.port or standard) == (own.hostname, own.port or standard) and bool(page.hostname)
    except ValueError:
        return False


def _is_own(host: str) -> bool:
    """Tell whether this is no name that somebody else can give to this machine."""
    try:
        name = urlsplit(f"//{host}").hostname
        return name in {None, "localhost"} or ip_address(name or "") is not None
    except ValueError:
        return False
