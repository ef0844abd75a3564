"""Rounds of `kill_rounds.py` on a store in PostgreSQL: the broker and the database server are killed in turn."""

from collections.abc import Callable
from pathlib import Path

from tests.crash.kill_rounds import Check, Process, kill, kill_rounds
from tests.postgres import PATIENCE, Postgres


def postgresql_rounds(place: Path, rounds: int, seed: int, progress: Callable[[int], object] = lambda _: None) -> Check:
    """Run so many rounds on a server of their own, then drain the store; return the checked log."""
    with Postgres() as server:

        def end(process: Process, number: int) -> None:
            if number % 2:
                kill(process, number)
                return
            server.kill()
            code = process.wait(PATIENCE)
            assert code == 1, f"without its database it ended with {code}"
            server.start()

        return kill_rounds(place, rounds, seed, progress, where=server.create_database(), end=end)
