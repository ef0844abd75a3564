"""Watchers are told whether promises can be kept, by status and reason."""

import asyncio
import json

import pytest

from penstock.store.journal import Journal
from tests.broker.stores import FailingStore
from tests.crash.simulated_disk import SimulatedDisk
from tests.served import PATIENCE, Served
from tests.server.inside import asked, inside
from tests.server.raw import Raw
from tests.stomp_wire import Refused, Wire

SEGMENT_BYTES = 64 * 1024


def test_a_sound_broker_is_alive_and_ready(served: Served) -> None:
    """Both say so in JSON."""
    for path in (b"/healthz", b"/readyz"):
        with Raw(served.native) as peer:
            response = peer.send(b"GET " + path + b" HTTP/1.0\r\n\r\n").response()
            assert (response.status, json.loads(response.body)) == (200, {"status": "ok"})


async def published_on_and_on(wire: Wire) -> None:
    """Publish until that is refused."""
    while True:
        await wire.confirmed("SEND", {"destination": "/queue/a"}, bytes(2000))


async def test_a_store_that_has_failed_is_told_to_all() -> None:
    """Neither alive nor ready, an ERROR to whoever is connected, and no receipt is given any more."""
    async with inside(FailingStore(4, permanent=True)) as address:
        wire = await Wire.open(address)
        with pytest.raises(Refused, match=r"Unavailable.*the disk is on fire"):
            await published_on_and_on(wire)
        for path in ("/healthz", "/readyz"):
            response = await asked(address, path)
            assert response.status == 503
            assert "the store has failed: the disk is on fire" in json.loads(response.body)["reason"]
        overview = json.loads((await asked(address, "/api/v1/overview")).body)
        assert overview["store"]["failure"] == "the disk is on fire"
        await wire.close()


async def test_a_full_disk_is_not_ready_until_there_is_room() -> None:
    """But it is alive, since settling goes on, and publishing resumes by itself."""
    store = Journal(
        "data",
        segment_bytes=SEGMENT_BYTES,
        file_system=SimulatedDisk(capacity=SEGMENT_BYTES * 12),
        background=False,
    )
    async with inside(store) as address:
        wire = await Wire.open(address)
        with pytest.raises(Refused, match=r"disk is full"):
            await published_on_and_on(wire)
        response = await asked(address, "/readyz")
        assert (response.status, json.loads(response.body)["reason"]) == (503, "the disk is full")
        assert (await asked(address, "/healthz")).status == 200
        await wire.close()

        consumer = await Wire.open(address)
        consumer.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "client-individual"})
        status = json.loads((await asked(address, "/status/a")).body)
        for _ in range(status["ready"] + status["assigned"]):  # some of them may be on their way already
            message = await consumer.message()
            await consumer.confirmed("ACK", {"id": message.headers["ack"]})
        async with asyncio.timeout(PATIENCE):
            while (await asked(address, "/readyz")).status != 200:
                pass
        await consumer.confirmed("SEND", {"destination": "/queue/a"}, b"again")
        await consumer.close()
