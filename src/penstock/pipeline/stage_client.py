"""How a task puts its rows onto the broker, and how the driver has them published."""

import logging
import struct
import time
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from crc32c import crc32c

from penstock.model.errors import StoreError, Unavailable
from penstock.model.staged import StagedRow
from penstock.pipeline.broker_client import BrokerClient

LOG = logging.getLogger("penstock.pipeline")

#: Half of what the broker takes as the body of a request (http_body_bytes_max).
PIECE_BYTES = 2**19
#: Rows and bytes of their bodies that the broker publishes in one go: some milliseconds.
FRAME_ROWS = 500
FRAME_BYTES = 2**18
#: A driver waits so long for a large batch to be published, and for a broker that is being restarted.
PUBLISH_SECONDS = 3600.0
RESTART_SECONDS = 60.0
PAUSE_SECONDS = 1.0
_HEADER = struct.Struct("<II")
_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True, frozen=True)
class Batch:
    """Which batch of which query is written."""

    query: str
    number: int
    is_stream: bool


class Stage:
    """The rows of one task, unseen until its driver decides; `close` it, or `drop` it."""

    def __init__(self, client: BrokerClient, batch: Batch) -> None:
        self._client = client
        self.name = f"{batch.query}.{batch.number}.{uuid.uuid4().hex}"
        self.rows = 0
        self._frame: list[StagedRow] = []
        self._frame_bytes = 0
        self._pieces = bytearray()

    def add(self, row: StagedRow) -> None:
        """Put a row behind the others."""
        self._frame.append(row)
        self._frame_bytes += len(row.body)
        if len(self._frame) >= FRAME_ROWS or self._frame_bytes >= FRAME_BYTES:
            self._end_frame()

    def close(self) -> None:
        """Have the broker check all rows; raises if one would be refused."""
        self._end_frame()
        if not self.rows:
            return
        self._send(len(self._pieces))
        found = self._client.ask(dict[str, int], "POST", f"/stages/{self.name}/check", timeout=PUBLISH_SECONDS)["rows"]
        if found != self.rows:
            raise Unavailable(f"the broker has {found} of {self.rows} rows that were staged; run the task again")

    def drop(self) -> None:
        """Throw the rows away."""
        drop(self._client, self.name)

    def _end_frame(self) -> None:
        if not self._frame:
            return
        data = _encode(self._frame)
        self._pieces += _HEADER.pack(len(data), crc32c(data))
        self._pieces += data
        self.rows += len(self._frame)
        self._frame, self._frame_bytes = [], 0
        self._send(len(self._pieces) // PIECE_BYTES * PIECE_BYTES)

    def _send(self, count: int) -> None:
        """Send that many bytes, in pieces that fit into a request."""
        for start in range(0, count, PIECE_BYTES):
            piece = bytes(self._pieces[start : min(start + PIECE_BYTES, count)])
            self._client.send("POST", f"/stages/{self.name}", piece)
        del self._pieces[:count]


def drop(client: BrokerClient, stage: str) -> None:
    """Throw a stage away."""
    client.send("DELETE", f"/stages/{stage}")


def publish(client: BrokerClient, batch: Batch, stages: list[str], rows: int) -> None:
    """Have the rows of a batch published, all or none; a broker that is just restarting is waited for."""
    wanted = {
        "query": batch.query, "batch": batch.number, "stages": stages, "rows": rows, "is_stream": batch.is_stream,
    }  # fmt: skip
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            last = client.ask(dict[str, Any], "POST", "/writes", wanted, PUBLISH_SECONDS)["batch"]
        except StoreError:
            raise
        except Unavailable:
            # It was decided, or it was not: asking again is safe either way.
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            if last > batch.number:
                LOG.warning(
                    "batch %d of the query %s was not published: its batch %d was before, and numbers have to ascend; "
                    "a stream that begins anew needs another name for its query",
                    batch.number,
                    batch.query,
                    last,
                )
            return
