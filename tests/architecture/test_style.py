"""What the linter cannot say: modules explain themselves, functions and files stay short, nothing is left for later."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, Module, modules

#: Longer than that, a function is more than one thought; its docstring is not counted.
FUNCTION_LINES_MAX = 70
#: Longer than that, a file is more than one subject.
FILE_LINES_MAX = 500
#: Words that mark what somebody meant to do later; in halves, so that they do not stand here themselves.
REMINDER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|W" r"IP)\b")
TEXTS = {".cfg", ".css", ".html", ".js", ".md", ".proto", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml", ""}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> list[Function]:
    """Return every function and method of a module, nested ones included."""
    return [node for node in ast.walk(module.tree) if isinstance(node, Function)]


def body_lines(function: Function) -> int:
    """Count a function's lines from `def` to its end, without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def texts() -> list[Path]:
    """Return the texts of the repository, without what tools and builds left."""
    places = ["src", "tests", "scripts", "docs", "bench", "examples", "proto", ".ci"]
    found = [path for place in places for path in (ROOT / place).rglob("*")]
    found += ROOT.glob("*")
    return sorted(p for p in found if p.is_file() and p.suffix in TEXTS and "__pycache__" not in p.parts)


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.place)
def test_a_module_says_what_lives_in_it(module: Module) -> None:
    """The first thing in a file is a sentence about it."""
    assert ast.get_docstring(module.tree), f"{module.place} has no docstring"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.place)
def test_files_and_functions_stay_short(module: Module) -> None:
    """A reader can keep each in mind."""
    lines = len(module.text.splitlines())
    found = [f"{module.place} has {lines} lines, {FILE_LINES_MAX} at most"] if lines > FILE_LINES_MAX else []
    found += [
        f"{module.place}:{function.lineno} {function.name} has {body_lines(function)} lines, {FUNCTION_LINES_MAX} at most"
        for function in functions(module)
        if body_lines(function) > FUNCTION_LINES_MAX
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.place)
def test_functions_say_what_they_return(module: Module) -> None:
    """The signature alone tells how to call it."""
    found = [f"{module.place}:{f.lineno} {f.name}" for f in functions(module) if f.returns is None]
    assert not found, "without a return annotation:\n" + "\n".join(found)


def test_nothing_is_left_for_later() -> None:
    """What is not done stands in an issue, not in the tree."""
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if REMINDER.search(line)
    ]
    assert not found, "\n".join(found)
