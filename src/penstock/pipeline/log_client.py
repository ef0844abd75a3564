"""What Spark's driver and workers ask of the change log: its extent, bytes and names, readers and pins."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from penstock.pipeline.broker_client import Answer, BrokerClient

#: Bytes of the log that one request asks for; they are in memory as a whole on both sides.
READ_BYTES = 2 * 2**20


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


class LogClient(BrokerClient):
    """What is asked of the change log."""

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
        return self.send("GET", f"/log/files/{file}?{urlencode({'start': start, 'end': end})}")

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
        return self.ask(answer, method, f"/log{path}", content)


def _reader(name: str) -> str:
    return f"/readers/{quote(name, safe='')}"
