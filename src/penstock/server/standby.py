"""Standing by: what a broker does while another one writes to the store that both point at.

It listens where everything is spoken, tells watchers that it is alive and not ready, and everybody else to go elsewhere.
The doors of single protocols stay closed, so that clients with several hosts go on to the next.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeAlias, cast

from penstock.model.errors import PenstockError, Unavailable
from penstock.server.doorways import Doorway
from penstock.server.farewell import Farewell
from penstock.server.house import House
from penstock.server.http.connection import HttpConnection
from penstock.server.http.messages import Request, Response, error_response, json_response
from penstock.server.sniffing import Language, Stranger

#: Writes an error as each language does in which one can be told before anything else.
Refusals: TypeAlias = Mapping[Language, Callable[[PenstockError], bytes]]

#: What the line of a door begins with.
STANDBY = "standby"


class Standby:
    """See the module; `reason` says what is waited for."""

    def __init__(self, house: House, doorways: list[Doorway], refusals: Refusals) -> None:
        self.reason = "this broker stands by"
        self._house = house
        self._doorways = doorways
        self._refusals = refusals

    async def open(self, say: Callable[[str], None]) -> None:
        """Listen, and say where."""
        for doorway in self._doorways:
            if doorway.name == "native":
                await doorway.open(self._house, partial(Stranger, self._house, self._makers()))
                say(f"{STANDBY} {doorway.url}")

    def close(self) -> None:
        """Let those who come wait for whoever opens next."""
        for doorway in self._doorways:
            doorway.shut()
        for guest in list(self._house.guests):
            guest.stop()
        self._house.wheel.stop()

    async def answer(self, request: Request) -> Response:
        """Answer a request over HTTP."""
        told = {"status": "standby", "reason": self.reason}
        if request.method in {"GET", "HEAD"} and request.path == "/healthz":
            return json_response(told)
        if request.method in {"GET", "HEAD"} and request.path == "/readyz":
            return json_response(told, HTTPStatus.SERVICE_UNAVAILABLE)
        return error_response(self._error())

    def _makers(self) -> Mapping[Language, Callable[[], asyncio.Protocol]]:
        makers: dict[Language, Callable[[], asyncio.Protocol]] = {
            language: partial(self._refusing, write) for language, write in self._refusals.items()
        }
        makers[Language.HTTP] = partial(HttpConnection, self._house, self)
        return makers

    def _refusing(self, write: Callable[[PenstockError], bytes]) -> asyncio.Protocol:
        return Refusing(self._house, write(self._error()))

    def _error(self) -> Unavailable:
        return Unavailable(f"{self.reason}; ask another host, or again soon", key="standby")


class Refusing(asyncio.Protocol):
    """A connection that is told one thing, and closed."""

    def __init__(self, house: House, last_word: bytes) -> None:
        self._house = house
        self._last_word = last_word

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell it, and close."""
        stream = cast("asyncio.Transport", transport)
        stream.write(self._last_word)
        Farewell(self._house, stream)
