"""The names of what is gone while the change log still speaks of it: records name channels and clients by number alone."""

from collections.abc import Container
from typing import Any, NamedTuple, TypeVar

#: Of each sort; one takes about 200 bytes. A reader learns short lives from the log itself, where they begin.
DEPARTED_MAX = 20_000

Name = TypeVar("Name")


class CursorName(NamedTuple):
    """What the number of a queue, topic or subscriber stands for."""

    channel_type: str
    channel: str
    tags: tuple[str, ...] = ()
    subscriber: str | None = None


class Departed:
    """Numbers are never given twice, so a name that was told once stays true. The longest gone are forgotten first."""

    __slots__ = ("_clients", "_cursors")

    def __init__(self) -> None:
        #: By number, with the position at which it went.
        self._cursors: dict[int, tuple[int, CursorName]] = {}
        self._clients: dict[int, tuple[int, bytes]] = {}

    def cursor_went(self, number: int, position: int, name: CursorName) -> None:
        """Remember a queue, topic or subscriber."""
        _keep(self._cursors, number, position, name)

    def client_went(self, number: int, position: int, ident: bytes) -> None:
        """Remember a client."""
        _keep(self._clients, number, position, ident)

    def cursors(self, numbers: Container[int]) -> dict[int, CursorName]:
        """Return what those of these numbers stood for that are known."""
        return {number: name for number, (_, name) in self._cursors.items() if number in numbers}

    def client(self, number: int) -> bytes | None:
        """Return the id of a client."""
        found = self._clients.get(number)
        return found[1] if found is not None else None

    def forget_before(self, position: int) -> None:
        """Forget what went before the log begins."""
        _forget(self._cursors, position)
        _forget(self._clients, position)

    def dump(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "cursors": [[number, at, list(name)] for number, (at, name) in self._cursors.items()],
            "clients": [[number, at, ident] for number, (at, ident) in self._clients.items()],
        }

    def load(self, cursors: list[Any], clients: list[Any]) -> None:
        """Know again what was dumped."""
        for number, at, (channel_type, channel, tags, subscriber) in cursors:
            self.cursor_went(number, at, CursorName(channel_type, channel, tuple(tags), subscriber))
        for number, at, ident in clients:
            self.client_went(number, at, ident)


def _keep(names: dict[int, tuple[int, Name]], number: int, position: int, name: Name) -> None:
    names[number] = (position, name)
    if len(names) > DEPARTED_MAX:
        del names[next(iter(names))]


def _forget(names: dict[int, tuple[int, Name]], position: int) -> None:
    for number, (at, _) in list(names.items()):
        if at >= position:
            break
        del names[number]
