"""Succession: serves as often as the store can be had, one server after the other, at the same doors.

A store that one broker alone can use is served once, from the start of the process to its end. One that is shared is
served whenever it is this broker's turn; until then, and again after it was lost, the broker stands by.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.model.errors import PenstockError, StoreAway, StoreFailed, StoreInUse
from penstock.protocols.door import Door
from penstock.runtime.runtime import Runtime
from penstock.server.doorways import Doorway
from penstock.server.listening import bound_socket
from penstock.server.server import Languages, Server, ServerOptions, check, new_house
from penstock.server.standby import Refusals, Standby

LOG = logging.getLogger("penstock.standby")
#: Between two tries to get a store that somebody else writes to.
CONTEND_SECONDS = 0.1
#: The longest wait between two tries to reach a store that is away; each is twice as long as the one before.
AWAY_SECONDS_MAX = 1.0
#: A store that was lost sooner after it was had is had again the more slowly.
SETTLED_SECONDS = 5.0
#: What may be over when it is tried again; anything else wants a person.
_PASSING = (StoreAway, StoreFailed, StoreInUse)


@dataclass(slots=True, frozen=True)
class Maker:
    """What makes the parts of each server."""

    runtime: Callable[[], Runtime]
    languages: Callable[[Runtime, Door], Languages]
    refusals: Refusals


class Succession:
    """See the module."""

    def __init__(self, maker: Maker, options: ServerOptions) -> None:
        check(options)
        self._maker = maker
        self._options = options
        self._doorways: list[Doorway] = []
        self._stopped = asyncio.Event()
        self._say: Callable[[str], None]
        #: Before the next try to get the store.
        self._wait_seconds = CONTEND_SECONDS
        #: Why the store was lost last; in words, since an error holds on to all that it came from.
        self._lost: str | None = None

    def stop(self) -> None:
        """End in good order."""
        self._stopped.set()

    async def run(self, say: Callable[[str], None]) -> PenstockError | None:
        """Serve until told to stop, and say where; returns why promises could not be kept, if that is how it ended."""
        self._say = say
        self._doorways = [Doorway(door, self._options.tls) for door in self._options.doors]
        for door in self._options.own_doors:
            bound_socket(door.address, door.option).close()  # one that cannot be had is told at once, too
        try:
            runtime = self._maker.runtime()
            if not runtime.store.is_shared:
                return await self._serve_own(runtime)
            # What is wrong from the beginning is told at once: nobody waits for a server that was never there.
            waits = not await asyncio.to_thread(runtime.store.contend)
            while not self._stopped.is_set():
                self._lost = await self._serve_in_turn(runtime, waits=waits)
                if self._lost is not None:
                    LOG.error("nothing is promised until the store can be had again: %s", self._lost)
                runtime, waits = self._maker.runtime(), True
            return None
        finally:
            for doorway in self._doorways:
                doorway.close()

    async def _serve_own(self, runtime: Runtime) -> PenstockError | None:
        """Serve a store of this broker's own to the end; if it fails, stay to tell so."""
        for doorway in self._doorways:
            doorway.hold()
        server = self._server(runtime)
        await server.recover()
        await server.open(self._doorways, self._say)
        await self._stopped.wait()
        await server.stop()
        return runtime.failure

    async def _serve_in_turn(self, runtime: Runtime, *, waits: bool) -> str | None:
        """Serve a store that is shared, after waiting for it; returns why it was lost, if it was."""
        server = self._server(runtime)
        try:
            if not waits:
                await server.recover()
            elif not await self._stand_by(runtime, server):
                return None
        except _PASSING as error:
            self._wait_longer()
            return str(error)
        await server.open(self._doorways, self._say)
        began = time.monotonic()
        await self._until_over(runtime)
        if time.monotonic() - began < SETTLED_SECONDS:
            self._wait_longer()  # a full disk, say: the store can be had again and again, and fails at the first commit
        else:
            self._wait_seconds = CONTEND_SECONDS
        await server.stop()
        return None if runtime.failure is None else str(runtime.failure)

    def _server(self, runtime: Runtime) -> Server:
        return Server(runtime, self._options, self._maker.languages)

    async def _until_over(self, runtime: Runtime) -> None:
        """Wait until the broker is told to stop, or its store fails."""
        is_over = asyncio.Event()
        runtime.watch(is_over.set)
        stopped = asyncio.ensure_future(self._stopped.wait())
        stopped.add_done_callback(lambda _: is_over.set())
        if runtime.failure is None:
            await is_over.wait()
        stopped.cancel()

    # Standing by.

    async def _stand_by(self, runtime: Runtime, server: Server) -> bool:
        """Stand by until the store can be had, and recover from it; returns whether that has come to pass."""
        standby = Standby(new_house(runtime, self._options.limits), self._doorways, self._maker.refusals)
        standby.reason = _waits_for(runtime) if self._lost is None else _waits_after(self._lost)
        await standby.open(self._say)
        try:
            if not await self._contend(runtime, standby):
                return False
            standby.reason = "this broker takes over"
            LOG.warning("%s", standby.reason)
            await server.recover()
        finally:
            standby.close()
        return True

    async def _contend(self, runtime: Runtime, standby: Standby) -> bool:
        """Try to get the store again and again; returns whether it was had before the broker was told to stop."""
        try:
            while not await self._is_stopped_within(self._wait_seconds):
                try:
                    if await self._has_got(runtime):
                        return True
                except _PASSING as error:
                    standby.reason = _waits_after(str(error))
                    self._wait_longer()
                else:
                    standby.reason = _waits_for(runtime)
                    self._wait_seconds = CONTEND_SECONDS
        except BaseException:
            await asyncio.to_thread(runtime.store.close)
            raise
        await asyncio.to_thread(runtime.store.close)
        return False

    async def _has_got(self, runtime: Runtime) -> bool:
        """Try once; if the broker is told to stop meanwhile, do not wait for a server that does not answer."""
        contending = asyncio.ensure_future(asyncio.to_thread(runtime.store.contend))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((contending, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not contending.done():
            await asyncio.to_thread(runtime.store.close)
        return await contending and not self._stopped.is_set()

    def _wait_longer(self) -> None:
        self._wait_seconds = min(2 * self._wait_seconds, AWAY_SECONDS_MAX)

    async def _is_stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()


def _waits_for(runtime: Runtime) -> str:
    return f"this broker stands by while {runtime.store.holder or 'another'} writes to the store"


def _waits_after(lost: str) -> str:
    return f"this broker stands by: {lost}"
