"""What Spark's driver and workers ask of a broker over HTTP: its change log, readers, pins and stages."""

import http.client
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client.address import Target, target_of
from penstock.client.errors import error_by_code
from penstock.model.errors import PenstockError, Unavailable

#: Longer than a broker on a busy disk needs for a sync; what takes longer is broken.
TIMEOUT_SECONDS = 60.0
#: Bytes of the log that one request asks for; they are in memory as a whole on both sides.
READ_BYTES = 4 * 2**20

Answer = TypeVar("Answer")


@dataclass(slots=True, frozen=True)
class Extent:
    """From which position to which, exclusive, a log can be read."""

    shard: int
    first: int
    end: int


@dataclass(slots=True, frozen=True)
class Stretch:
    """Bytes of a file of the log, and the positions of the records that are meant."""

    file: int
    salt: int
    start: int
    end: int
    first: int
    last: int
    oldest: float
    newest: float


@dataclass(slots=True, frozen=True)
class Reader:
    """A named place in the log."""

    name: str
    position: int
    moved_at: float
    behind: int


@dataclass(slots=True, frozen=True)
class Names:
    """What numbers in records stand for: type, channel, tags and subscriber of cursors, ids of clients."""

    cursors: dict[int, tuple[str, str, tuple[str, ...], str | None]]
    clients: dict[int, str]


class LogClient:
    """Asks one broker; each request has a connection of its own, so that nothing is kept open between batches."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._target = _target(url)

    # The log.

    def extent(self) -> Extent:
        """Return how far the log reaches."""
        return self._asked(Extent, "GET", "")

    def position_at(self, time: float) -> int:
        """Return the position of the first record of a time or later."""
        return self._position("/position", time=time)

    def advance(self, first: int, end: int, rows: int, size: int) -> int:
        """Return up to which position somebody comes with so many rows and bytes."""
        return self._position("/batch", **{"from": first, "to": end, "rows": rows, "bytes": size})

    def stretches(self, first: int, end: int) -> list[Stretch]:
        """Return which bytes of which files hold the records of a range."""
        query = {"from": first, "to": end}
        return self._asked(dict[str, list[Stretch]], "GET", f"/stretches?{urlencode(query)}")["stretches"]

    def read(self, file: int, start: int, end: int) -> bytes:
        """Return bytes of a file."""
        return self._send("GET", f"/log/files/{file}?{urlencode({'start': start, 'end': end})}")

    def names(self, cursors: list[int], clients: list[int]) -> Names:
        """Return what these numbers stand for."""
        return self._asked(Names, "POST", "/names", {"cursors": cursors, "clients": clients})

    # Readers and pins.

    def readers(self) -> dict[str, Reader]:
        """Return all readers by name."""
        return {reader.name: reader for reader in self._asked(dict[str, list[Reader]], "GET", "/readers")["readers"]}

    def take_reader(self, name: str, owner: str, position: int) -> Reader:
        """Read by a reader from now on, made at `position` if need be."""
        return self._asked(Reader, "POST", _reader(name), {"position": position, "owner": owner})

    def move_reader(self, name: str, owner: str, position: int) -> Reader:
        """Move a reader that was taken."""
        return self._asked(Reader, "PUT", _reader(name), {"position": position, "owner": owner})

    def remove_reader(self, name: str) -> None:
        """Remove a reader."""
        self._asked(dict[str, Any], "DELETE", _reader(name))

    def pin(self, position: int, parts: int) -> int:
        """Have the log kept from a position on, until so many parts were read or ten minutes have passed."""
        return self._asked(dict[str, int], "POST", "/pins", {"position": position, "parts": parts})["pin"]

    def unpin(self, pin: int, part: int) -> None:
        """Say that a part was read."""
        self._asked(dict[str, Any], "DELETE", f"/pins/{pin}/{part}")

    # Inside.

    def _position(self, path: str, **query: float) -> int:
        return self._asked(dict[str, int], "GET", f"{path}?{urlencode(query)}")["position"]

    def _asked(self, answer: type[Answer], method: str, path: str, content: object = None) -> Answer:
        body = None if content is None else msgspec.json.encode(content)
        return msgspec.json.decode(self._send(method, f"/log{path}", body), type=answer)

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return what is answered; an error that the broker tells is raised as the embedded broker would."""
        try:
            with closing(self._connection()) as connection:
                connection.request(method, f"/api/v1{path}", body, _headers(self._target))
                response = connection.getresponse()
                data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the broker at {self._where()} cannot be reached: {error!r}. Is it running, and "
                "does the option `url` name its general port (http://HOST:8080)?",
                key="url",
            ) from None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise _refusal(response.status, data)
        return data

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._target.hosts[0]
        if self._target.tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=self._target.tls)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def _where(self) -> str:
        host, port = self._target.hosts[0]
        return f"{host}:{port}"


def _target(url: str) -> Target:
    """Return what a URL names; `http` and `https` are other words for the same port."""
    scheme, mark, rest = url.partition("://")
    return target_of({"http": "penstock", "https": "penstocks"}.get(scheme, scheme) + mark + rest)


def _headers(target: Target) -> dict[str, str]:
    if target.user is None:
        return {}
    login = b64encode(f"{target.user}:{target.secret}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _reader(name: str) -> str:
    return f"/readers/{quote(name, safe='')}"


def _refusal(status: int, data: bytes) -> PenstockError:
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
        return error_by_code(str(told["error"]), str(told["message"]), told.get("key"))
    except (msgspec.DecodeError, KeyError):
        return Unavailable(f"what answers there is no broker of this version: HTTP status {status}", key="url")
