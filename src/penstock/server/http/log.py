"""The change log for those who read all of it: `/api/v1/log`, its bytes, names, readers and pins.

A reader decodes the journal's bytes itself, so that it costs the broker next to nothing. It may do so if it may
administer all channels, since the log tells of all.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec

from penstock.model.access import Action
from penstock.model.errors import BadRequest, NoObject, TooLarge
from penstock.model.names import checked_name
from penstock.model.publication import checked_deadline
from penstock.model.stages import Level
from penstock.runtime.runtime import Runtime
from penstock.server.http.messages import Request, Response, json_response
from penstock.server.http.router import Router

#: Bytes of one answer, which are in memory as a whole.
READ_BYTES_MAX = 8 * 2**20
#: Numbers whose names are asked for at a time.
NAMES_MAX = 100_000
ALL_CHANNELS = "*"
NUMBER_MAX = 2**63 - 1

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")


class NamesWanted(msgspec.Struct):
    """Numbers of queues, topics and subscribers, and of clients."""

    cursors: list[int] = []
    clients: list[int] = []


class ReaderMove(msgspec.Struct):
    """Where a reader is to be, and who reads by it."""

    position: int
    owner: str


class PinWanted(msgspec.Struct):
    """From where on the log is to be kept until so many parts have been read."""

    position: int
    parts: int


class ChangeLog:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: Of each pin, the parts that were not read yet.
        self._unread: dict[int, set[int]] = {}

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        rows: list[tuple[str, str, Callable[[Request], Any]]] = [
            ("GET", "", self.extent),
            ("GET", "/position", self.position),
            ("GET", "/batch", self.batch),
            ("GET", "/stretches", self.stretches),
            ("GET", "/files/{file}", self.file),
            ("POST", "/names", self.names),
            ("GET", "/readers", self.readers),
            ("GET", "/readers/{name}", self.reader),
            ("POST", "/readers/{name}", self.take_reader),
            ("PUT", "/readers/{name}", self.move_reader),
            ("DELETE", "/readers/{name}", self.remove_reader),
            ("POST", "/pins", self.pin),
            ("DELETE", "/pins/{pin}/{part}", self.unpin),
        ]
        for method, path, handler in rows:
            router.add(method, f"/api/v1/log{path}", handler)

    # The log.

    def extent(self, request: Request) -> Response:
        """Tell from which position to which the log can be read."""
        log, end = self._log(request), self._runtime.durable_end
        return json_response({"shard": 0, "first": log.start(end), "end": end})

    async def position(self, request: Request) -> Response:
        """Tell the position of the first record of a time or later."""
        log = self._log(request)
        try:
            time = checked_deadline(float(request.option("time") or ""), "time")
        except ValueError:
            raise BadRequest("time must be seconds since 1970", key="time") from None
        return json_response({"position": await _in_thread(log.at, time, self._runtime.durable_end)})

    async def batch(self, request: Request) -> Response:
        """Tell up to which position somebody comes with so many rows and about so many bytes."""
        log = self._log(request)
        first, end = self._range(request)
        rows, size = _number(request, "rows", NUMBER_MAX), _number(request, "bytes", NUMBER_MAX)
        return json_response({"position": await _in_thread(log.advance, first, end, max(1, rows), max(1, size))})

    async def stretches(self, request: Request) -> Response:
        """Tell which bytes of which files hold the records of a range."""
        log = self._log(request)
        found = await _in_thread(log.stretches, *self._range(request))
        return json_response({"stretches": [asdict(stretch) for stretch in found]})

    async def file(self, request: Request) -> Response:
        """Give bytes of a file as they are."""
        log = self._log(request)
        start, end = _number(request, "start", 0), _number(request, "end", 0)
        if end - start > READ_BYTES_MAX:
            raise TooLarge(
                f"{end - start} bytes are too many at a time; at most {READ_BYTES_MAX}", key="end", limit=READ_BYTES_MAX
            )
        data = await _in_thread(log.read, _parameter(request, "file"), start, end)
        return Response(headers=[("Content-Type", "application/octet-stream")], body=data)

    def names(self, request: Request) -> Response:
        """Tell what numbers in records stand for, those included that are gone while the log has records of them."""
        self._log(request)
        wanted = _body(request, NamesWanted)
        if len(wanted.cursors) + len(wanted.clients) > NAMES_MAX:
            raise TooLarge(f"at most {NAMES_MAX} names can be asked for at a time", key="cursors", limit=NAMES_MAX)
        engine = self._runtime.engine
        cursors = engine.cursor_names(frozenset(wanted.cursors))
        clients = engine.client_ids(wanted.clients)
        return json_response({"cursors": cursors, "clients": {number: one.hex() for number, one in clients.items()}})

    # Readers.

    def readers(self, request: Request) -> Response:
        """Tell all readers, and how far each is behind."""
        self._log(request)
        found = self._runtime.engine.readers.by_name
        return json_response({"readers": [self._told(name) for name in sorted(found)]})

    def reader(self, request: Request) -> Response:
        """Tell one reader."""
        self._log(request)
        return json_response(self._told(request.parameters["name"]))

    async def take_reader(self, request: Request) -> Response:
        """Have a query read by a reader, which is made if need be."""
        self._log(request)
        name = checked_name(request.parameters["name"], "reader")
        wanted = _body(request, ReaderMove)
        self._check(wanted.position)
        runtime = self._runtime
        runtime.check()
        runtime.engine.readers.take(name, wanted.owner, wanted.position, runtime.now())
        return await self._recorded(self._told(name))

    async def move_reader(self, request: Request) -> Response:
        """Take note how far a query has read."""
        self._log(request)
        name, wanted = request.parameters["name"], _body(request, ReaderMove)
        self._check(wanted.position)
        runtime = self._runtime
        runtime.check()
        runtime.engine.readers.move_own(name, wanted.owner, wanted.position, runtime.now())
        return await self._recorded(self._told(name))

    async def remove_reader(self, request: Request) -> Response:
        """Hold the log for a reader no longer."""
        self._log(request)
        runtime = self._runtime
        runtime.check()
        runtime.engine.readers.remove(request.parameters["name"], runtime.now())
        return await self._recorded({})

    # Pins.

    def pin(self, request: Request) -> Response:
        """Keep the log for a batch read until its parts were read, or for ten minutes."""
        self._log(request)
        wanted = _body(request, PinWanted)
        readers, now = self._runtime.engine.readers, self._runtime.now()
        readers.held_from(now)
        self._unread = {pin: parts for pin, parts in self._unread.items() if readers.is_pinned(pin)}
        pin = readers.pin(wanted.position, now)
        self._unread[pin] = set(range(min(wanted.parts, NAMES_MAX)))
        return json_response({"pin": pin})

    def unpin(self, request: Request) -> Response:
        """Take note that a part was read."""
        self._log(request)
        pin = _parameter(request, "pin")
        unread = self._unread.get(pin, set())
        unread.discard(_parameter(request, "part"))
        if not unread:
            self._unread.pop(pin, None)
            self._runtime.engine.readers.unpin(pin)
        return json_response({})

    # Inside.

    def _log(self, request: Request) -> Any:
        request.access.check(Action.ADMINISTER, ALL_CHANNELS)
        log = self._runtime.store.log
        if log is None:
            raise BadRequest(
                "this broker's store keeps no log of what happened; start it with `--store journal` to read one",
                key="store",
            )
        return log

    def _range(self, request: Request) -> tuple[int, int]:
        end = self._runtime.durable_end
        return _number(request, "from", 0), min(end, _number(request, "to", end))

    def _check(self, position: int) -> None:
        end = self._runtime.durable_end
        if not 0 <= position <= end:
            raise BadRequest(f"the log ends at position {end}, and {position} is not in it", key="position", end=end)

    def _told(self, name: str) -> dict[str, Any]:
        reader = self._runtime.engine.readers.by_name.get(name)
        if reader is None:
            raise NoObject(f"there is no reader {name!r}", key="reader", reader=name)
        return {**asdict(reader), "behind": max(0, self._runtime.durable_end - reader.position)}

    async def _recorded(self, content: dict[str, Any]) -> Response:
        """Answer once what was changed is on disk."""
        self._runtime.touch()
        await self._runtime.confirm(Level.SYNC)
        return json_response(content)


async def _in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def _body(request: Request, wanted: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(request.body, type=wanted)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body cannot be read: {error}", key="body") from None


def _number(request: Request, name: str, default: int) -> int:
    return _whole(request.option(name), name, default)


def _parameter(request: Request, name: str) -> int:
    return _whole(request.parameters[name], name, 0)


def _whole(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise BadRequest(f"{name} must be a whole number from 0 to {NUMBER_MAX}", key=name)
    return int(text)
