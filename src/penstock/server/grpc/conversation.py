"""Conversations: move requests and responses between a stream and its session, each only as fast as the other."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from grpc import aio

from penstock.model.errors import PenstockError
from penstock.model.stages import Level
from penstock.protocols.grpc.streams import Session
from penstock.runtime.runtime import Runtime

Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"  # it is generic for type checkers alone
MakeSession: TypeAlias = Callable[[Callable[[], None]], Session]


class Conversation:
    """See the module."""

    def __init__(self, runtime: Runtime, make: MakeSession, context: Context) -> None:
        self._runtime = runtime
        self._context = context
        self._has_news = asyncio.Event()
        self._has_said = asyncio.Event()
        #: What went wrong in a way that nobody has foreseen.
        self._mistake: Exception | None = None
        self.session = make(self._has_news.set)

    async def run(self) -> None:
        """Carry it to its end, and raise what went wrong if something did."""
        listening = asyncio.get_running_loop().create_task(self._listen())
        try:
            await self._speak()
        finally:
            listening.cancel()
            self.session.lost()
        error = self._mistake or self.session.error
        if error is not None:
            raise error

    async def _speak(self) -> None:
        session, write = self.session, self._context.write
        while True:
            self._has_news.clear()
            while (response := session.next_response()) is not None:
                await write(response)
                self._has_said.set()
            if session.is_over:
                return
            await self._has_news.wait()

    async def _listen(self) -> None:
        session, runtime = self.session, self._runtime
        try:
            while not session.is_deaf and isinstance(data := await self._context.read(), bytes):
                session.hear(data)
                if runtime.is_behind():
                    await runtime.confirm(Level.READY)
                while session.is_full:
                    self._has_said.clear()
                    await self._has_said.wait()
            session.end()
        except PenstockError as error:
            session.end(error)
        except Exception as error:  # noqa: BLE001  # whoever speaks tells it
            self._mistake = error
            session.end()
