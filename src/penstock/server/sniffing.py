"""The first bytes of a connection, which tell the protocol that the peer speaks.

| First bytes | Protocol |
|---|---|
| a method of HTTP and a space | HTTP, and WebSocket on top of it |
| `CONNECT` or `STOMP` and the end of a line, after any empty lines | STOMP |
| `{`, after any white space | native, one JSON object per line |
| `PSTK` and the byte 1 | native, frames of bincode |
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from math import inf
from typing import cast

from penstock.server.farewell import Farewell
from penstock.server.house import House
from penstock.server.wheel import Timed

PREFACE = b"PSTK\x01"
_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT ")
_STOMP = (b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n")
_WHITE_SPACE = re.compile(rb"[\r\n\t ]*")
#: White space that may come before the first word.
NOISE_BYTES_MAX = 256


class Language(Enum):
    """What a peer speaks."""

    HTTP = auto()
    STOMP = auto()
    LINES = auto()
    FRAMES = auto()


class UnknownLanguage(Exception):
    """Nothing that is spoken here begins so; the text is fit for the peer."""


def language_of(first: bytes) -> Language | None:
    """Return what begins with these bytes; None if more of them are needed."""
    noise = _WHITE_SPACE.match(first)
    word = first[noise.end() :] if noise is not None else first
    if not word:
        if len(first) > NOISE_BYTES_MAX:
            raise UnknownLanguage(f"more than {NOISE_BYTES_MAX} bytes of white space say nothing")
        return None
    if word[:1] == b"{":
        return Language.LINES
    for starts, language in ((_METHODS, Language.HTTP), (_STOMP, Language.STOMP), ((PREFACE,), Language.FRAMES)):
        if word.startswith(starts):
            return language
    if any(start.startswith(word) for start in (*_METHODS, *_STOMP, PREFACE)):
        return None
    raise UnknownLanguage(_advice(word))


def _advice(word: bytes) -> str:
    if word.startswith(b"PSTK"):
        return f"frames of version {word[4]} are not known here; there is version 1, PSTK and the byte 1"
    if word.startswith(b"\x16\x03"):
        return "TLS is not spoken at this port; connect without it, or listen with tls:HOST:PORT"
    return (
        "this begins like nothing spoken here: HTTP, WebSocket, STOMP, JSON lines, or frames after PSTK and the byte 1"
    )


class Stranger(asyncio.Protocol, Timed):
    """A connection that has not said yet what it speaks; hands its transport on when it has."""

    __slots__ = ("_house", "_makers", "_seen", "_transport")

    def __init__(self, house: House, makers: Mapping[Language, Callable[[], asyncio.Protocol]]) -> None:
        Timed.__init__(self)
        self._house = house
        self._makers = makers
        self._seen = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        self._transport = cast("asyncio.Transport", transport)
        self._house.guests.add(self)
        self._house.wheel.put(self, self._house.now() + self._house.limits.first_bytes_seconds)

    def data_received(self, data: bytes) -> None:
        """Look at the first bytes."""
        self._seen += data
        try:
            language = language_of(self._seen)
        except UnknownLanguage as error:
            self._refuse(str(error))
            return
        if language is None:
            return
        self._leave()
        protocol = self._makers[language]()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """Forget it."""
        self._leave()

    def turn(self, now: float) -> float:  # noqa: ARG002  # there is one time only, and it has come
        """Send away who has said nothing."""
        self._refuse(f"nothing was said within {self._house.limits.first_bytes_seconds:g} seconds")
        return inf

    def stop(self) -> None:
        """Close; nothing is held."""
        self._leave()
        self._transport.close()

    def _refuse(self, text: str) -> None:
        self._transport.write(f"error: {text}\n".encode())
        self._leave()
        Farewell(self._house, self._transport)

    def _leave(self) -> None:
        self._house.wheel.drop(self)
        self._house.guests.discard(self)
