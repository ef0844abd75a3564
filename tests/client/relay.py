"""Somebody who stands between a client and its broker, and loses what the broker says."""

import asyncio
from types import TracebackType
from typing import Self

from tests.served import Address


class Relay:
    """Hands bytes on in both directions, until it is told to lose those of the broker, or the connections."""

    def __init__(self, broker: Address) -> None:
        self.loses = False
        #: How often the broker has said something.
        self.answers = 0
        self._broker = broker
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        """What names the broker behind it."""
        host, port = self._server.sockets[0].getsockname()
        return f"penstock://{host}:{port}"

    def cut(self) -> None:
        """Lose the connections, and nothing more of those to come."""
        self.loses = False
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self._broker)
        self._writers += (to_client, to_broker)
        await asyncio.gather(
            self._pump(from_client, to_broker, loses=False), self._pump(from_broker, to_client, loses=True)
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, loses: bool) -> None:
        while data := await reader.read(1 << 16):
            self.answers += loses
            if not (loses and self.loses):
                writer.write(data)
        writer.close()
