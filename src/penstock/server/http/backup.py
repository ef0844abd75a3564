"""The whole state of the broker in one answer: `GET /api/v1/backup`, for those who may administer all channels."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.model.access import Action
from penstock.runtime.runtime import Runtime
from penstock.server.http.log import ALL_CHANNELS
from penstock.server.http.messages import Request, Response
from penstock.server.http.router import Router

#: Sent in one go, which takes the event loop some tenths of a millisecond; a part can be far longer.
PIECE_BYTES = 256 * 2**10
_HEADERS = [
    ("Content-Type", "application/octet-stream"),
    ("Content-Disposition", 'attachment; filename="penstock.backup"'),
]


class Backups:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        router.add("GET", "/api/v1/backup", self.backup)

    async def backup(self, request: Request) -> Response:
        """Give a backup as of now, as fast as the peer takes it; the broker goes on meanwhile."""
        request.access.check(Action.ADMINISTER, ALL_CHANNELS)
        if request.method == "HEAD":
            return Response(headers=_HEADERS)
        pieces = self._pieces()
        # What would refuse it has to be found before the answer begins.
        first = await anext(pieces)
        return Response(headers=_HEADERS, body=_joined(first, pieces))

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        """Give the parts one by one, each made in a thread."""
        loop = asyncio.get_running_loop()
        async with self._runtime.upkeep.capture() as capture:
            parts = capture.parts()
            while (part := await loop.run_in_executor(None, next, parts, None)) is not None:
                for start in range(0, len(part), PIECE_BYTES):
                    yield bytes(part[start : start + PIECE_BYTES])


async def _joined(first: bytes, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(others):
        yield first
        async for piece in others:
            yield piece
