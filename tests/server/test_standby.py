"""Two brokers on one PostgreSQL: one serves, the other takes over, and nobody is handed what is not so any more."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stomp

import penstock
import penstock.sync
from tests.native_wire import open_wire
from tests.pair import EXPECTED, Pair, asked, place_of, readiness
from tests.postgres import Postgres
from tests.served import FREE_PORTS, PATIENCE, Served
from tests.server.raw import CONNECT, Raw

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Pair]:
    """Start two brokers on a database; each test leaves one that serves and one that stands by."""
    with Pair(tmp_path_factory.mktemp("pair"), postgres.create_database()) as brokers:
        yield brokers


def test_who_stands_by_says_so(pair: Pair) -> None:
    """It is alive and not ready, names the one that serves, and sends everybody else away in their own language."""
    assert json.loads(asked(pair.standby, "/healthz").body)["status"] == "standby"
    assert asked(pair.standby, "/readyz").status == 503
    told = readiness(pair.standby)
    assert told["status"] == "standby"
    assert f":{pair.active.process.pid} writes to the store" in told["reason"]
    assert json.loads(asked(pair.standby, "/api/v1/queues").body)["error"] == "Unavailable"
    for said in (CONNECT, b'{"type":"ping"}\n', b"PSTK\x01"):
        with Raw(place_of(pair.standby)) as peer:
            assert b"this broker stands by" in peer.send(said).rest()
    assert readiness(pair.active) == {"status": "ok"}


def test_after_a_kill_the_other_goes_on(pair: Pair) -> None:
    """With all that was confirmed; and whoever is started in place of the one that was killed stands by."""

    async def use() -> None:
        async with penstock.connect(pair.url) as client:
            await client.enqueue("kept", b"held")
            await client.enqueue("kept", b"waits")
            held = await client.poll("kept", sync="sync")
            pair.active.kill()
            await asyncio.to_thread(pair.take_over)
            assert await client.complete(held) is False
            message = await client.poll("kept")
            assert (message.body, message.attempt) == (b"waits", 1)

    asyncio.run(use())
    pair.replace()
    assert readiness(pair.standby)["status"] == "standby"


def test_who_ends_in_good_order_hands_over(pair: Pair) -> None:
    """At once: nobody waits for silence."""
    pair.active.stop()
    pair.take_over()
    assert readiness(pair.active) == {"status": "ok"}
    pair.replace()


def test_who_was_stopped_hands_out_nothing_of_before(pair: Pair) -> None:
    """It finds out first that another serves: what peers ask of it is not answered, and it stands by from then on."""
    with open_wire(pair.active, "lines") as before:
        before.ask("post", queue="once", message="x", label=1)
        pair.active.process.send_signal(signal.SIGSTOP)
        before.say("pop", queue="once", label=2)
        before.say("fetch", queue="once", label=3)
        pair.take_over()
        with open_wire(pair.active, "lines") as after:
            assert after.ask("pop", queue="once", label=1)["body"] == "x"
        pair.go_on()
        answers = []
        while data := before.receive():
            answers.append(json.loads(data))
    assert [answer["type"] for answer in answers] == ["error"]
    assert answers[0]["code"] == "Unavailable"
    assert readiness(pair.standby)["status"] == "standby"
    pair.active.kill()
    pair.take_over()
    assert readiness(pair.active) == {"status": "ok"}
    pair.replace()


def test_clients_of_one_that_hangs_go_on_with_the_other(pair: Pair) -> None:
    """Their connections look sound; what they held stays theirs."""

    async def use() -> None:
        async with penstock.connect(pair.url) as client:
            await client.enqueue("hung", b"held")
            held = await client.poll("hung", sync="sync")
            subscription = client.subscribe("next")
            await asyncio.to_thread(pair.stop_time)
            assert await client.complete(held) is False
            await client.enqueue("next", b"x")
            assert (await anext(subscription)).body == b"x"

    asyncio.run(use())
    pair.go_on()


def test_stomp_clients_with_several_hosts_find_the_one_that_serves(pair: Pair) -> None:
    """As stomp.py does by itself: the door of the one that stands by is closed, also of one that has served before."""
    pair.stop_time()
    pair.go_on()
    hosts = [pair.standby.stomp, pair.active.stomp]
    with pytest.raises(ConnectionRefusedError):
        Raw(pair.standby.stomp)
    for _ in range(2):
        connection = stomp.Connection12(hosts)
        connection.connect(wait=True)
        assert connection.is_connected()
        connection.disconnect()
        pair.active.kill()
        pair.take_over()
        pair.replace()


def test_a_server_that_comes_back_is_served_again(tmp_path: Path, postgres: Postgres, database: str) -> None:
    """By the same process at the same ports, and clients go on; meanwhile it says what is wrong."""
    with Served(tmp_path, *FREE_PORTS, "--store", database, expected=EXPECTED) as broker:
        places = {door: broker.doors[door] for door in ("native", "stomp")}
        with penstock.sync.connect("penstock://{}:{}".format(*broker.native)) as client:
            client.enqueue("back", b"kept")
            held = client.poll("back", sync="sync")
            postgres.kill()
            broker.wait_for("standby")
            while "cannot be reached" not in readiness(broker).get("reason", ""):
                pass
            postgres.start()
            broker.wait_for("ready")
            assert broker.doors.items() >= places.items()
            assert client.complete(held) is False


def test_without_a_server_nothing_begins_and_everything_ends(tmp_path: Path, postgres: Postgres, database: str) -> None:
    """One that was never there is told at once; while one is gone, the broker can be stopped in good order."""
    with Served(tmp_path, *FREE_PORTS, "--store", database, expected=EXPECTED) as broker:
        postgres.stop()
        try:
            broker.wait_for("standby")
            command = [sys.executable, "-m", "penstock", "serve", *FREE_PORTS, "--store", database]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert (done.returncode, done.stdout) == (1, "")
            assert "cannot be reached" in done.stderr
            broker.stop()
        finally:
            postgres.start()


def test_what_will_not_come_back_ends_the_broker(tmp_path: Path, postgres: Postgres, database: str) -> None:
    """With a sentence: somebody has to do something."""
    broker = Served(tmp_path, *FREE_PORTS, "--store", database)
    postgres.execute("UPDATE penstock.version SET version = 1000", database.rpartition("/")[2])
    postgres.execute("UPDATE penstock.tenure SET epoch = epoch + 1", database.rpartition("/")[2])
    assert broker.process.wait(PATIENCE) == 1
    assert "was written in version 1000 of its tables" in broker.said()[-1]
    broker._wait()
