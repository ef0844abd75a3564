"""The documents tell the truth: links lead somewhere, verbs exist, the changelog knows the version."""

import re
from pathlib import Path

import pytest

import penstock
from tests.architecture.tree import ROOT, modules

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(document: Path) -> str:
    """Return the text of a document without its code blocks."""
    return FENCED.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """Return the names that headings of a document can be linked by, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Every link inside the repository names a file that is there, and a heading in it."""
    broken = []
    for link in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{document.name}: {broken}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_verbs_exist(document: Path) -> None:
    """Whoever types a command from a document gets what it says."""
    verbs = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = document.read_text(encoding="utf-8")
    used = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert used <= verbs


def test_a_document_has_one_title() -> None:
    """Each Markdown file is about one thing."""
    titles = {path.name: len(re.findall(r"^# ", prose(path), re.MULTILINE)) for path in DOCUMENTS}
    assert set(titles.values()) == {1}, titles


def test_the_changelog_knows_the_version() -> None:
    """A version is not released before the changelog says what is in it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{penstock.__version__}]" in changelog


def test_the_architecture_names_every_room() -> None:
    """A room that exists is explained in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {module.room for module in modules() if module.room}
    missing = [room for room in sorted(rooms) if f"`{room}/`" not in text and f"`{room}.py`" not in text]
    assert not missing


def test_constraints_name_no_address() -> None:
    """They hold exact versions alone, so that they work with any package index."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+(; .+)?", line)]
    assert not wrong
