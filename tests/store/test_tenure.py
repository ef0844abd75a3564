"""Who writes to a database: one at a time, whoever is silent loses it, and whoever lost it knows before it does harm."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from penstock.model.errors import StoreAway, StoreFailed, StoreUnreadable
from penstock.store.postgresql import tenure as module
from penstock.store.postgresql.tenure import FRESH_SECONDS, HUNG_SECONDS, SILENT_SECONDS, TABLES, Tenure
from tests.postgres import PATIENCE, Postgres


class Clock:
    """Time that goes on when it is told."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.seconds

    def let_others_look(self) -> None:
        """Wait until somebody in another thread has looked at it some times."""
        begun, until = time.monotonic(), self.looks + 5
        while self.looks < until:
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.001)


@pytest.fixture
def url(postgres: Postgres) -> str:
    """Return a database that has the tables."""
    made = postgres.create_database()
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA penstock")
        connection.execute(TABLES)
    return made


@pytest.fixture
def make(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tenure]]:
    """Make brokers that would write; none of them beats by itself, so that all that happens is what a test does."""
    monkeypatch.setattr(module, "BEAT_SECONDS", PATIENCE)
    made: list[Tenure] = []

    def make(clock: Callable[[], float] | None = None) -> Tenure:
        made.append(Tenure(connect_to(url), *([] if clock is None else [clock])))
        return made[-1]

    yield make
    for tenure in made:
        tenure.leave()


def connect_to(url: str) -> Callable[[str], "psycopg.Connection[Any]"]:
    """Return what opens sessions."""
    return lambda name: psycopg.connect(url, autocommit=True, application_name=name)


def beats(url: str) -> int:
    """Return how often the one who writes has beaten."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT beat FROM penstock.beats").fetchone()
    assert row is not None
    return int(row[0])


def silenced(standby: Tenure, clock: Clock) -> bool:
    """Let a standby see no beat for as long as it takes; returns whether it is the one who writes then."""
    assert not standby.contend()
    clock.seconds += SILENT_SECONDS + 0.01
    return standby.contend()


def test_one_at_a_time(make: Callable[..., Tenure]) -> None:
    """The next one has it as soon as the first has left, with a higher epoch, and each knows who it is."""
    first, second = make(), make()
    first.check()  # before anything is held there is nothing to lose
    assert first.contend()
    assert first.contend()
    assert not second.contend()
    assert second.holder == first.holder is not None
    first.leave()
    assert second.contend()
    assert second.epoch == first.epoch + 1
    second.check()


def test_whoever_beats_stays(make: Callable[..., Tenure]) -> None:
    """However long a standby waits, and however its clock stands beside that of the other."""
    clock = Clock()
    first, second = make(), make(clock)
    assert first.contend()
    for _ in range(3):
        assert not second.contend()
        first._beat()
        clock.seconds += SILENT_SECONDS * 2


def test_whoever_is_silent_is_replaced_and_knows(make: Callable[..., Tenure]) -> None:
    """Its sessions are ended; what it asks or says then is refused."""
    clock = Clock()
    first, second = make(), make(clock)
    assert first.contend()
    assert silenced(second, clock)
    with pytest.raises(StoreFailed, match="closed the session"):
        first._beat()
    with pytest.raises(StoreFailed, match="closed the session"):
        first.check()
    second.check()


def test_a_new_epoch_is_seen_without_losing_the_session(make: Callable[..., Tenure], url: str) -> None:
    """As when somebody restores the database under a broker."""
    tenure = make()
    tenure.contend()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE penstock.tenure SET epoch = epoch + 1")
    with pytest.raises(StoreFailed, match="another broker has taken this store over"):
        tenure._beat()


def test_who_was_stopped_asks_before_it_goes_on(make: Callable[..., Tenure]) -> None:
    """By its own clock alone it knows that it may have been replaced; if it was not, it goes on."""
    clock, other = Clock(), Clock()
    first, second = make(clock), make(other)
    assert first.contend()
    clock.seconds += FRESH_SECONDS * 100
    first.check()
    first.check()
    assert silenced(second, other)
    first.check()  # its last beat is so fresh that nobody can have replaced it, if clocks go alike
    clock.seconds += FRESH_SECONDS + 0.01
    with pytest.raises(StoreFailed):
        first.check()


def test_who_hangs_beats_no_more(make: Callable[..., Tenure], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread goes on while its event loop does not; when that goes on in time, nothing has happened."""
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.001)
    clock = Clock()
    tenure = make(clock)
    assert tenure.contend()
    tenure.check()
    clock.seconds += HUNG_SECONDS + 0.1
    clock.let_others_look()
    beat = beats(url)
    clock.let_others_look()
    assert beats(url) == beat

    tenure.check()
    clock.let_others_look()
    assert beats(url) > beat


def test_two_standbys_do_not_fight(make: Callable[..., Tenure]) -> None:
    """The second sees that somebody else is there now, and begins to wait anew."""
    clock = Clock()
    first, second, third = make(), make(clock), make(clock)
    assert first.contend()
    assert not second.contend()
    assert not third.contend()
    clock.seconds += SILENT_SECONDS + 0.01
    assert second.contend()
    assert not third.contend()
    clock.seconds += SILENT_SECONDS - 0.01
    assert not third.contend()
    second.check()


def test_a_commit_under_way_is_waited_for_or_ended(make: Callable[..., Tenure], url: str) -> None:
    """One of the silent broker's own sessions cannot hold the next one up, whatever it was in the middle of."""
    clock = Clock()
    first, second = make(), make(clock)
    assert first.contend()
    with psycopg.connect(url, application_name=first.name) as committing:
        committing.execute("SELECT epoch FROM penstock.tenure FOR SHARE")
        assert silenced(second, clock)
        with pytest.raises(psycopg.OperationalError):
            committing.execute("COMMIT")


def test_a_server_that_is_away_is_asked_again(make: Callable[..., Tenure], postgres: Postgres) -> None:
    """Who stands by tells that it cannot reach the database, and gets the store when it is back."""
    tenure = make()
    other = make()
    assert other.contend()
    assert not tenure.contend()
    postgres.stop()
    for _ in range(2):
        with pytest.raises((StoreAway, psycopg.OperationalError)):  # opening a session says so in its own way
            tenure.contend()
    with pytest.raises(StoreFailed):
        other._beat()
    postgres.start()
    assert tenure.contend()


def test_nobody_else_is_ended_with_a_silent_broker(make: Callable[..., Tenure], url: str) -> None:
    """Although it has not said yet what its sessions are called: others may have no name either."""
    clock = Clock()
    standby = make(clock)
    with psycopg.connect(url, autocommit=True) as holding, psycopg.connect(url, autocommit=True) as other:
        holding.execute(module._TRY_LOCK, module._LOCK)
        assert silenced(standby, clock)
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_another_role_is_told_why_it_cannot_take_over(make: Callable[..., Tenure], url: str) -> None:
    """Roles may end their own sessions only."""
    clock = Clock()
    first = make()
    assert first.contend()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS stranger")
        connection.execute("CREATE ROLE stranger")
        connection.execute("GRANT ALL ON SCHEMA penstock TO stranger")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA penstock TO stranger")

    def as_stranger(name: str) -> "psycopg.Connection[Any]":
        connection = psycopg.connect(url, autocommit=True, application_name=name)
        connection.execute("SET ROLE stranger")
        return connection

    second = Tenure(as_stranger, clock)
    assert not second.contend()
    clock.seconds += SILENT_SECONDS + 0.01
    with pytest.raises(StoreUnreadable, match="log in to PostgreSQL as the same role"):
        second.contend()
    second.leave()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY stranger")
        connection.execute("DROP ROLE stranger")


def test_a_server_that_does_not_answer_holds_nobody_for_long(
    make: Callable[..., Tenure], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks is told, and whoever leaves gets away."""
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    clock = Clock()
    tenure = make(clock)
    assert tenure.contend()
    with psycopg.connect(url) as blocking:
        blocking.execute("LOCK TABLE penstock.beats")
        while not waits(blocking):
            pass
        clock.seconds += FRESH_SECONDS + 0.01
        with pytest.raises(StoreFailed, match="has not answered"):
            tenure.check()
        tenure.leave()


def waits(connection: "psycopg.Connection[Any]") -> bool:
    """Tell whether somebody waits for a lock."""
    row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return row is not None and row[0] > 0
