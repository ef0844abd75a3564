"""The model, the engine, the protocols and the layouts of stores have no clock, no chance, no file and no loop of their own."""

import ast

import pytest

from tests.architecture.tree import Module, modules

#: What may not be imported there, and what to do instead.
BANNED = {
    "asyncio": "return effects; the broker waits",
    "concurrent": "return effects; the broker has the threads",
    "multiprocessing": "return effects; the broker has the processes",
    "os": "leave files to the store",
    "pathlib": "leave files to the store",
    "random": "take randomness as an argument",
    "secrets": "take randomness as an argument",
    "select": "leave sockets to the server",
    "selectors": "leave sockets to the server",
    "socket": "leave sockets to the server",
    "ssl": "leave sockets to the server",
    "subprocess": "leave processes to scripts",
    "threading": "return effects; the broker has the threads",
    "time": "take the time as an argument",
    "uuid": "take ids as arguments",
}
CLOCKS = {"now", "utcnow", "today"}


def is_pure(module: Module) -> bool:
    """Whether the ban holds for the module."""
    return module.room in {"model", "engine", "protocols"} or module.parts in {
        ("store", "batches"),
        ("store", "journal", "format"),
    }


def impurities(module: Module) -> list[str]:
    """Return a sentence for each banned import and each look at a clock."""
    found = [
        f"{module.place}:{line} imports {name}: {BANNED[name.split('.')[0]]}"
        for line, name in module.imports
        if name.split(".")[0] in BANNED
    ]
    found += [
        f"{module.place}:{node.lineno} looks at the clock: take the time as an argument"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS and "date" in ast.unparse(node.value)
    ]
    return found


PURE = [module for module in modules() if is_pure(module)]


@pytest.mark.parametrize("module", PURE, ids=lambda module: module.place)
def test_it_takes_time_and_chance_as_arguments(module: Module) -> None:
    """So that it can be replayed, simulated and tested without waiting."""
    found = impurities(module)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["import time", "from os import path", "import os.path", "x = datetime.datetime.now()", "x = date.today()"],
)
def test_a_clock_is_seen(line: str) -> None:
    """However it is written."""
    module = Module(modules()[0].path.parent / "engine" / "x.py", ("engine", "x"))
    module.__dict__["tree"] = ast.parse(line)
    assert impurities(module)
