"""Each room imports only what its row of the table allows, and every room has a row."""

import ast
import textwrap
from pathlib import Path

import pytest

from tests.architecture.tree import Module, modules

#: What each room may import of ours, besides itself; `store.port` opens that module alone, and "*" everything.
MAY_IMPORT: dict[str, set[str]] = {
    # penstock/__init__.py, lazily: what the calls of the broker take and give back.
    "": {
        "broker",
        "client.client",
        "engine.inspection",
        "runtime.subscription",
        "runtime.transaction",
        "store.port",
        "model",
    },
    "model": set(),
    "engine": {"model"},
    "store": {"model"},
    "runtime": {"engine", "store", "model"},
    "broker": {"runtime", "engine", "store", "model"},
    "sync": {"broker", "client.client", "runtime", "model"},
    "v1": set(),
    "protocols": {"engine.port", "model", "v1"},
    "server": {"protocols", "broker", "runtime", "engine.port", "model", "v1"},
    "client": {"protocols", "model"},
    "pipeline": {"model", "store.batches", "client"},
    "dashboard": set(),
    "testing": {"store.port", "model"},
    "demo": {"broker", "runtime.subscription", "model", ""},
    "config": {"server.limits", "server.listening", "engine.readers", "store.locate", "model"},
    "assembly": {"config", "server", "protocols", "runtime", "store", "model"},
    "cli": {"*"},
    "__main__": {"cli"},
}


def strangers(module: Module, may_import: set[str]) -> list[str]:
    """Return a sentence for each import of ours that the module's row does not allow."""
    if "*" in may_import:
        return []
    public = set()
    if "" in may_import:
        public = {name for _, name in module.imports if name.count(".") == 1}  # `from penstock import Broker`
    allowed = [f"penstock.{room}" for room in {*may_import, module.room} if room]
    return [
        f"{module.place}:{line} imports {name}"
        for line, name in module.imports
        if name.split(".")[0] == "penstock"
        and name not in {*public, "penstock.__version__"}
        and not any(f"{name}.".startswith(f"{room}.") for room in allowed)
        and not (not module.parts and name == "penstock")
    ]


def test_every_room_has_a_row() -> None:
    """A room that is new has to be put into the table, the contract in pyproject.toml and docs/architecture.md."""
    assert {module.room for module in modules()} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    """The table holds, imports inside functions and for type checkers included."""
    found = [line for module in modules() if module.room == room for line in strangers(module, MAY_IMPORT[room])]
    assert not found, "\n".join(found)


def test_stores_know_the_port_and_not_each_other() -> None:
    """A store can be taken away without touching another; `locate` alone names them all."""
    found = []
    beside_the_port = ("batches", "compaction", "history", "live", "port", "recall", "runs")
    shared = tuple(f"penstock.store.{name}." for name in beside_the_port)
    for module in modules():
        if module.room != "store" or module.parts[1:] in {(), ("locate",)}:
            continue
        own = (*shared, f"penstock.store.{module.parts[1]}.")
        found += [
            f"{module.place}:{line} imports {name}"
            for line, name in module.imports
            if name.startswith("penstock.store") and not f"{name}.".startswith(own)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("from penstock.model.records import Kind", True),
        ("from penstock.engine import state", True),
        ("from . import state", True),
        ("from ..model import records", True),
        ("from ..store import port", False),
        ("from penstock.store.port import Store", False),
        ("import penstock.store", False),
        ("from penstock import store", False),
        ("from penstock.modelling import x", False),
        ("def late():\n    import penstock.broker", False),
    ],
)
def test_an_import_that_is_not_allowed_is_seen(line: str, *, allowed: bool) -> None:
    """However it is written."""
    module = Module(modules()[0].path.parent / "engine" / "x.py", ("engine", "x"))
    module.__dict__["tree"] = ast.parse(textwrap.dedent(line), str(Path("x.py")))
    assert (not strangers(module, MAY_IMPORT["engine"])) is allowed
