"""The source tree as the tests of the architecture see it: paths, module names and syntax trees."""

import ast
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "penstock"


@dataclass(frozen=True)
class Module:
    """One file under src/penstock; `parts` is its dotted name without the leading `penstock`."""

    path: Path
    parts: tuple[str, ...]

    @property
    def place(self) -> str:
        """How failures name it."""
        return str(self.path.relative_to(ROOT))

    @property
    def room(self) -> str:
        """The room that it stands in: the first part of its name, empty for `penstock` itself."""
        return self.parts[0] if self.parts else ""

    @cached_property
    def text(self) -> str:
        """What stands in the file."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, str(self.path))

    @property
    def imports(self) -> list[tuple[int, str]]:
        """Everything that it imports, wherever that stands, as line and absolute dotted name."""
        package = ("penstock", *self.parts)
        if self.path.name != "__init__.py":
            package = package[:-1]
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                source = ".".join(part for part in (base, node.module) if part)
                found += [(node.lineno, f"{source}.{alias.name}") for alias in node.names]
        return found


@lru_cache
def modules() -> tuple[Module, ...]:
    """Every module of the package that people write, in order of path."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if "_pb2" in path.stem:
            continue
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append(Module(path, parts[:-1] if parts[-1] == "__init__" else parts))
    return tuple(found)
