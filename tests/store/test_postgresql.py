"""The store in PostgreSQL, beyond what every store promises: one writer at a time, what fails and how it is told, sizes."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from penstock.model.errors import BadRequest, StoreAway, StoreDamaged, StoreFailed, StoreTooNew, StoreUnreadable
from penstock.store.locate import store_at
from penstock.store.postgresql import Postgresql, tenure, writer
from penstock.store.postgresql.schema import _LOCK, STEPS
from penstock.store.postgresql.sessions import Server
from penstock.testing.stores import message, messages
from tests.conftest import require
from tests.postgres import PASSWORD, PATIENCE, Postgres, children, find_programs

Open = Callable[..., Postgresql]
_END_WAITING = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def opened(database: str) -> Iterator[Open]:
    """Return what opens stores in one database; all that a test leaves open is closed."""
    made: list[Postgresql] = []

    def opened(**options: int) -> Postgresql:
        store = Postgresql(database, **options)
        made.append(store)
        list(store.open().batches)
        store.adopt([])
        return store

    yield opened
    for store in made:
        store.close()


@pytest.fixture
def own() -> Iterator[Postgres]:
    """Run a PostgreSQL that a test may end."""
    require(find_programs(), "PostgreSQL is not installed")
    with Postgres() as server:
        yield server


def asked(database: str, statement: str) -> list[tuple[object, ...]]:
    """Return what a statement gives."""
    with psycopg.connect(database, autocommit=True) as session:
        cursor = session.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def publish(store: Postgresql, first: int, last: int, *, each: int = 50, body: bytes = b"x" * 200) -> None:
    """Publish messages in batches."""
    for begin in range(first, last + 1, each):
        store.write(begin, messages(begin, min(begin + each - 1, last), body), [])
    store.sync()


# One writer.


def take_over(database: str) -> None:
    """Do what a broker does that has ended the sessions of a silent one, if one of these were still there."""
    asked(database, "UPDATE penstock.tenure SET epoch = epoch + 1")


def test_who_was_taken_over_commits_nothing(opened: Open, database: str) -> None:
    """A batch, an index and a collection of an older epoch change no row, and the store has failed from then on."""
    for late in (
        lambda store: publish_late(store, store._writer.last + 1),
        lambda store: store.save(11, b"late"),
        lambda store: store.collect(10**6),
    ):
        store = opened(run_bytes=4096)
        first = store._writer.last + 1
        publish(store, first, first + 100)
        store.write(first + 101, [], range(first, first + 101))
        store.sync()
        for _ in range(2):
            store.save(first + 101, b"index")
        rows = asked(database, "SELECT first FROM penstock.batches")
        take_over(database)
        with pytest.raises(StoreFailed, match="another broker has taken over"):
            late(store)
        for again in (store.sync, lambda: store.save(1, b"")):  # noqa: B023  # called here
            with pytest.raises(StoreFailed, match="another broker has taken over"):
                again()
        assert asked(database, "SELECT first FROM penstock.batches") == rows
        assert asked(database, "SELECT state FROM penstock.indexes") == [(b"index",)]
        store.close()


def publish_late(store: Postgresql, position: int) -> None:
    """Have something committed."""
    store.write(position, [message(position)], [])


def test_a_commit_under_way_waits_for_whoever_takes_over_and_then_counts_for_nothing(
    opened: Open, database: str
) -> None:
    """Though it was sent before the epoch changed."""
    store = opened()
    publish(store, 1, 10)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database) as other:
        other.execute("UPDATE penstock.tenure SET epoch = epoch + 1")
        writing = pool.submit(publish_late, store, 11)
        wait_until(lambda: asked(database, "SELECT 1 FROM pg_locks WHERE NOT granted") != [])
        other.commit()
        with pytest.raises(StoreFailed, match="another broker has taken over"):
            writing.result(PATIENCE)
    assert asked(database, "SELECT max(first) FROM penstock.batches") == [(1,)]


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask until it is so."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to this")


# What fails.


def test_a_server_that_goes_ends_all_promises(own: Postgres) -> None:
    """Each call says what has failed, also when the server is back: a new store finds all that was confirmed."""
    url = own.create_database()
    store = Postgresql(url)
    list(store.open().batches)
    store.adopt([])
    publish(store, 1, 100)
    own.kill()
    with pytest.raises(StoreFailed, match=r"database test1 at 127\.0\.0\.1.*has failed") as first:
        publish_late(store, 101)
    own.start()
    for call in (lambda: store.write(102, [message(102)], []), store.sync, lambda: store.recall([1])):
        with pytest.raises(StoreFailed) as error:
            call()
        assert error.value is first.value
    store.close()

    again = Postgresql(url)
    positions = [position for batch in again.open().batches for position in batch.positions]
    assert positions == list(range(1, 101))
    again.close()


def test_whoever_waits_for_a_server_that_hangs_is_told(own: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker stops waiting as soon as it cannot be sure any more that it is the one who writes."""
    monkeypatch.setattr(tenure, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(tenure, "FRESH_SECONDS", 0.5)
    monkeypatch.setattr(tenure, "ANSWER_SECONDS", 0.1)
    store = Postgresql(own.create_database())
    list(store.open().batches)
    everyone = [own.process.pid, *children(own.process.pid)]
    for process in everyone:
        os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(publish_late, store, 1)
        wait_until(lambda: has_failed(store))
        with pytest.raises(StoreFailed):
            waiting.result(PATIENCE)
        for process in everyone:
            os.kill(process, signal.SIGCONT)
        store.close()


def has_failed(store: Postgresql) -> bool:
    """Ask as the broker does whenever it looks at its clock."""
    try:
        store.check()
    except StoreFailed:
        return True
    return False


def test_a_server_that_is_not_there_is_told(postgres: Postgres) -> None:
    """With its name, and as something that may pass."""
    store = Postgresql("postgresql://nobody:hush@127.0.0.1:1/nowhere")
    with pytest.raises(StoreAway, match=r"database nowhere at 127\.0\.0\.1:1 cannot be reached") as error:
        store.open()
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "says", "cure"),
    [
        ({"password": "wrong-secret"}, "password authentication failed", "pgpass"),
        ({"database": "missing"}, 'database "missing" does not exist', "docs/postgresql.md"),
    ],
)
def test_a_login_that_is_refused_is_told(postgres: Postgres, address: dict[str, str], says: str, cure: str) -> None:
    """With what to do, and without the password."""
    store = Postgresql(postgres.url(**address))
    with pytest.raises(StoreUnreadable) as error:
        store.open()
    assert says in error.value.message
    assert cure in error.value.message
    assert "secret" not in error.value.message
    assert PASSWORD not in error.value.message


def test_an_address_that_makes_no_sense_is_told_without_its_password() -> None:
    """As an address, and not as what libpq thinks of it."""
    with pytest.raises(BadRequest, match="as libpq has it") as error:
        store_at("postgresql://user:hush@host:port/database?nonsense=1")
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("password", ["some@secret", "secret/some", "@@secret"])
def test_no_part_of_a_password_that_was_not_quoted_is_told(password: str) -> None:
    """For libpq a part of it is the host or the port, which errors tell."""
    with pytest.raises(BadRequest, match="%40") as error:
        store_at(f"postgresql://user:{password}@host/database")
    assert "secret" not in str(error.value)


def test_several_hosts_and_sockets_may_be_named() -> None:
    """As libpq has them."""
    for address in ("a,b:5433", "a:1,b:2", "", "%2Ftmp", "%40abstract", "[::1]:5432"):
        Server(f"postgresql://user:hush@{address}/database")


def test_a_role_without_the_right_to_make_tables_is_told(postgres: Postgres, database: str) -> None:
    """And one that owns the schema needs no more."""
    name = database.rpartition("/")[2]
    postgres.execute(f"CREATE ROLE poor{name} LOGIN PASSWORD 'poor'")
    address = postgres.url(name, f"poor{name}", "poor")
    with pytest.raises(StoreUnreadable, match="needs a schema `penstock` that it owns"):
        Postgresql(address).open()
    postgres.execute(f"CREATE SCHEMA penstock AUTHORIZATION poor{name}", name)
    store = Postgresql(address)
    list(store.open().batches)
    publish(store, 1, 10)
    store.close()


def test_a_role_that_may_only_read_is_told(opened: Open, postgres: Postgres, database: str) -> None:
    """Nobody waits for a right to come by itself."""
    opened().close()
    name = database.rpartition("/")[2]
    postgres.execute(f"CREATE ROLE reader{name} LOGIN PASSWORD 'poor'")
    asked(database, f"GRANT USAGE ON SCHEMA penstock TO reader{name}")
    asked(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO reader{name}")
    with pytest.raises(StoreUnreadable, match="permission denied for table tenure"):
        Postgresql(postgres.url(name, f"reader{name}", "poor")).open()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_replica_that_takes_no_writes_is_told(opened: Open, database: str, *, is_new: bool) -> None:
    """It may be the primary soon."""
    if not is_new:
        opened().close()
    asked(database, f"ALTER DATABASE {database.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(StoreAway, match="takes no writes now"):
        Postgresql(database).open()


def test_a_server_that_goes_while_the_tables_are_looked_at_is_told(database: str) -> None:
    """As something that passes, since a broker that stands by asks again."""
    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", _LOCK)
        contending = pool.submit(Postgresql(database).contend)
        while not asked(database, _END_WAITING):
            assert not contending.done()
        with pytest.raises(StoreAway, match="cannot be reached"):
            contending.result(PATIENCE)


def test_a_damaged_row_is_named(opened: Open, database: str) -> None:
    """Bytes that are not those that were written are not taken for a message."""
    store = opened()
    publish(store, 1, 100)
    asked(database, "UPDATE penstock.batches SET bytes = set_byte(bytes, 1000, 7) WHERE first = 51")
    with pytest.raises(StoreDamaged, match=r"row 51 of penstock\.batches"):
        list(store.read(1, 100))


@pytest.mark.parametrize("row", [1, 151])
def test_a_missing_row_is_noticed(opened: Open, database: str, row: int) -> None:
    """What somebody has deleted by hand is not taken for something that never was, in runs that are full or not."""
    store = opened()
    publish(store, 1, 500)
    asked(database, f"DELETE FROM penstock.batches WHERE first = {row}")
    with pytest.raises(StoreDamaged, match="not all there"):
        list(store.read(1, 500))
    store.close()
    with pytest.raises(StoreDamaged, match="the one before it is not there"):
        opened()


# The tables.


def test_tables_of_a_newer_penstock_are_left_alone(opened: Open, database: str) -> None:
    """Both versions are told."""
    opened().close()
    asked(database, "UPDATE penstock.version SET version = 99")
    with pytest.raises(StoreTooNew, match=f"version 99.*up to {len(STEPS)}"):
        Postgresql(database).open()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM penstock.version",
        "DROP TABLE penstock.version",
        "ALTER TABLE penstock.version RENAME version TO other",
        "ALTER TABLE penstock.version ALTER version TYPE text",
    ],
)
def test_tables_of_somebody_else_are_left_alone(opened: Open, database: str, change: str) -> None:
    """They are no mistake of Penstock, and nothing to wait for."""
    opened().close()
    asked(database, change)
    with pytest.raises(StoreUnreadable, match="is not as Penstock makes it"):
        Postgresql(database).open()


def test_tables_are_made_once_by_whoever_comes_first(database: str) -> None:
    """Brokers that start at the same time do not get into each other's way."""
    stores = [Postgresql(database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(Postgresql.contend, stores)) == 1
    assert asked(database, "SELECT version FROM penstock.version") == [(len(STEPS),)]
    for store in stores:
        store.close()


def test_sessions_are_what_they_should_be_whatever_the_server_is_set_to(postgres: Postgres, database: str) -> None:
    """What was confirmed has to be on disk; and no session ends because nothing was recalled for a while."""
    asked(database, f"ALTER DATABASE {database.rpartition('/')[2]} SET synchronous_commit = off")
    asked(database, f"ALTER DATABASE {database.rpartition('/')[2]} SET default_transaction_isolation = 'serializable'")
    asked(database, f"ALTER DATABASE {database.rpartition('/')[2]} SET idle_session_timeout = '1min'")
    with Server(database).session("test") as session:
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert session.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        assert session.execute("SHOW idle_session_timeout").fetchone() == ("0",)


def test_a_server_that_syncs_nothing_is_noted() -> None:
    """It breaks every promise when its machine crashes, and whoever runs it should know."""
    require(find_programs(), "PostgreSQL is not installed")
    with Postgres("fsync=off") as server:
        store = Postgresql(server.create_database())
        assert any("fsync = off" in note for note in store.open().notes)
        store.close()


# Sizes.


def test_a_large_body_comes_back(opened: Open) -> None:
    """16 MiB, alone and among others."""
    store = opened()
    body = bytes(range(256)) * 2**16
    store.write(1, [message(1), message(2, body), message(3)], [])
    store.sync()
    assert store.recall([2, 1]) == [message(2, body), message(1)]
    assert [len(batch.records) for batch in store.read(1, 3)] == [3]


def test_a_batch_that_is_too_large_for_a_row_becomes_several(
    opened: Open, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """All of them are there, or none."""
    monkeypatch.setattr(writer, "BATCH_BYTES_MAX", 10_000)
    store = opened()
    asked(database, "INSERT INTO penstock.batches VALUES (76, 0, '')")
    with pytest.raises(StoreFailed):
        store.write(1, messages(1, 100, b"x" * 1000), [])
    store.close()
    assert asked(database, "DELETE FROM penstock.batches RETURNING first") == [(76,)]

    store = opened()
    store.write(1, messages(1, 100, b"x" * 1000), [])
    ((rows, largest),) = asked(database, "SELECT count(*), max(octet_length(bytes)) FROM penstock.batches")
    assert rows > 10
    assert largest <= 10_000
    assert store.recall(range(1, 101)) == messages(1, 100, b"x" * 1000)


def test_what_waits_deep_in_a_queue_is_recalled(opened: Open) -> None:
    """A hundred thousand messages, in order and from all over the place."""
    opened().close()
    store = opened(run_bytes=1 << 20)
    publish(store, 1, 100_000, each=1000, body=b"")
    store.close()
    store = opened()
    found = [record for first in range(1, 100_001, 500) for record in store.recall(range(first, first + 500))]
    assert [record[3] for record in found] == list(range(1, 100_001))
    apart = list(range(99_999, 0, -9_973))
    assert [record[3] for record in store.recall(apart)] == apart


def test_runs_are_counted_again_after_a_kill(opened: Open, database: str) -> None:
    """The one that was not full has no numbers in the database, and is found as it was."""
    store = opened(run_bytes=20_000)
    publish(store, 1, 500)
    before = store.stretches()
    assert len(before) > 3
    assert asked(database, "SELECT count(*) FROM penstock.runs WHERE last IS NULL") != [(0,)]
    store.close()
    again = opened(run_bytes=20_000)
    again.adopt([range(1, 501)])
    assert again.stretches() == before
    publish(again, 501, 510)
    assert asked(database, "SELECT count(*) FROM penstock.runs WHERE last IS NULL") == [(1,)]


def test_messages_are_recalled_while_their_rows_are_replaced(opened: Open) -> None:
    """Whoever looks one up finds it in the old rows or in the new ones."""
    store = opened(run_bytes=20_000)
    publish(store, 1, 4000)
    live = list(range(1, 4001))
    with ThreadPoolExecutor(1) as pool:
        while len(live) > 10:
            keep = set(live[::3])
            position = store._writer.last + 1
            store.write(position, [message(position)], [one for one in live if one not in keep])
            store.save(position + 1, b"index")
            live = sorted(keep)
            collecting = pool.submit(store.collect, position)
            while not collecting.done():
                assert [record[3] for record in store.recall(live[::20])] == live[::20]
            assert collecting.result() > 0


def test_one_old_message_keeps_no_finished_ones(opened: Open, database: str) -> None:
    """What consumers have settled is given back, round after round, while an old message waits."""
    store = opened(run_bytes=20_000)
    position, sizes = 2, []
    store.write(1, [message(1)], [])
    for _ in range(5):
        publish(store, position, position + 499)
        store.write(position + 500, [], range(position, position + 500))
        store.sync()
        position += 500
        store.save(position, b"index")
        store.collect(position)
        sizes += asked(database, "SELECT sum(octet_length(bytes)), count(*) FROM penstock.batches")
        assert store.recall([1]) == [message(1)]
    assert max(size for size, _ in sizes) < 40_000
    assert max(rows for _, rows in sizes) < 10
    assert next(stretch.live_messages for stretch in store.stretches()) == 1
