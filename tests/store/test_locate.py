"""Which store an address, a path or an object means, and what is told when there is none."""

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.model.errors import BadRequest
from penstock.store import locate
from penstock.store.journal import Journal
from penstock.store.locate import checked_address, store_at
from penstock.store.memory import Memory

MODULE = """
from penstock.store.memory import Memory

class Mine(Memory):
    def __init__(self, *where, **options):
        super().__init__()
        self.where, self.options = where, options

def nothing(where):
    return None
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with stores, as an installer leaves it behind."""
    (tmp_path / "stores_of_mine.py").write_text(MODULE)
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\nProvides-Extra: far\n")
    (about / "entry_points.txt").write_text(
        "[penstock.stores]\n"
        "mine = stores_of_mine:Mine\nnone = stores_of_mine:nothing\n"
        "far = stores_of_far:Far\nlost = stores_of_lost:Lost\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stores_of_mine", raising=False)


def test_our_own_stores_are_installed_by_name() -> None:
    """The names of SPEC §9, each with what makes it."""
    assert {point.name: point.value for point in entry_points(group=locate.GROUP)} == {
        "journal": "penstock.store.journal:Journal",
        "memory": "penstock.store.memory:Memory",
        "postgresql": "penstock.store.postgresql:Postgresql",
    }
    assert isinstance(store_at("memory:"), Memory)


@pytest.mark.parametrize("directory", ["data", "./a:b", "a/b:c", "/a:b", "1:b", "A:b"])
def test_what_has_no_name_in_front_is_a_directory(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Colons further on are part of a path."""
    monkeypatch.chdir(tmp_path)
    store = store_at(directory)
    assert (type(store), store.directory) == (Journal, directory)


def test_a_path_is_a_directory_whatever_it_looks_like(tmp_path: Path) -> None:
    """An address is a text."""
    assert isinstance(store_at(Path("memory:")), Journal)


def test_a_directory_that_is_there_changes_no_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text means the same store on every machine."""
    (tmp_path / "nowhere:data").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadRequest, match=r"A directory of this name is written \./nowhere:"):
        store_at("nowhere:data")


@pytest.mark.parametrize(
    ("address", "given"),
    [("mine:", ()), ("mine:some/where:else", ("some/where:else",)), ("mine://me@host/name", ("mine://me@host/name",))],
)
@pytest.mark.usefixtures("installed")
def test_a_store_gets_what_its_address_says(address: str, given: tuple[str, ...]) -> None:
    """What stands behind the name, and a URL as a whole; options as they are."""
    store: Any = store_at(address, depth=3)
    assert (store.where, store.options) == (given, {"depth": 3})


@pytest.mark.usefixtures("installed")
async def test_a_broker_opens_on_a_store_that_is_installed() -> None:
    """By its address alone."""
    async with Broker.open("mine:here") as broker:
        await broker.enqueue("orders", b"1")


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("redis://host", "there is no store 'redis' here, but far, journal, lost, memory, mine, none, postgresql; "),
        ("far://host", 'the store far needs stores_of_far, which is not installed: pip install "mine[far]"'),
        ("lost:", "the store lost needs stores_of_lost, which is not installed: pip install stores_of_lost"),
        ("none:here", "what is installed as the store none is none: it made <class 'NoneType'>"),
        ("memory:here", "the store memory does not take this address or these options: "),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_is_no_store_is_told(address: str, fault: str) -> None:
    """With what is missing, and what to do."""
    with pytest.raises(BadRequest) as told:
        store_at(address)
    assert told.value.message.startswith(fault)


def test_an_extra_that_was_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Penstock itself too: PostgreSQL without its driver."""
    point = next(one for one in entry_points(group=locate.GROUP) if one.name == "postgresql")
    monkeypatch.setattr(EntryPoint, "load", lambda self: __import__("a_driver_that_is_not_there"))
    with pytest.raises(BadRequest, match=r'pip install "penstock\[postgresql\]"'):
        store_at(f"{point.name}://host/database")


def test_no_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address may have one, and errors go to logs."""

    def refuse(url: str) -> Memory:
        raise ValueError("the port is no number")

    monkeypatch.setattr(EntryPoint, "load", lambda self: refuse)
    with pytest.raises(BadRequest) as told:
        store_at("postgresql://me:secret@host:port/database")
    assert "secret" not in str(told.value)
    assert "the port is no number" in str(told.value)
    with pytest.raises(BadRequest, match="--store is no address") as told:
        checked_address("Postgresql://me:secret@host/database", "--store")
    assert "secret" not in str(told.value)
