"""What all tests share: how a test says that something it needs is not there, and what becomes of that."""

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres import Postgres

# How fast a machine is, and how busy, decides nothing; what fails prints how to fail again.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("penstock")


def require(condition: object, reason: str) -> None:
    """Skip the test with the reason unless the condition holds; with CI=true that fails it, as every skip does."""
    if not condition:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Postgres]":
    """Run one PostgreSQL for all tests; whoever stops it starts it again."""
    from tests.postgres import Postgres, find_programs  # this file is run without its neighbours, too

    require(find_programs(), "PostgreSQL is not installed")
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: "Postgres") -> Iterator[str]:
    """Lend the address of an empty database on it."""
    name = postgres.borrow_database()
    yield postgres.url(name)
    postgres.give_back(name)


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where nothing may be skipped; a test that is expected to fail is not one."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"with CI=true nothing may be skipped: {reason.removeprefix('Skipped: ')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See to tests that skip themselves."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See to modules that skip themselves."""
    report = yield
    _fail_if_skipped(report)
    return report
