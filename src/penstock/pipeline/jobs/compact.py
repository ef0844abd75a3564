"""`penstock pipeline compact`: many small files of a day and channel become few large ones."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.model.errors import Unavailable
from penstock.pipeline.tables.lake import READ_FAILED, Lake, LakeChanged
from penstock.pipeline.tables.refresh import ROWS_PER_FILE, gathered
from penstock.pipeline.tables.schemas import TABLES
from penstock.pipeline.tables.stretches import name_events, name_files, spans_of

Tell = Callable[[str], None]
#: What a file is to have at most: large enough for a scan to be quick, small enough for a task's memory.
FILE_BYTES = 128 * 2**20
#: Files of at least half of that stay as they are, and a directory with a single small file too.
_SMALL_BYTES = FILE_BYTES // 2
#: Directories of one commit: what is lost if another job commits first.
_DIRECTORIES = 100
_ATTEMPTS = 3

_ORDER = {"events": "position", "messages": "sequence", "queue_minutes": "minute", "dead_letters": "signature"}


@dataclass(slots=True, frozen=True)
class Compacted:
    """How many files became how many."""

    files_before: int = 0
    files_after: int = 0


def compact(lake: Lake, tell: Tell) -> Compacted:
    """Rewrite the small files of all tables."""
    before = after = 0
    for table in TABLES:
        small = small_files(lake.files.sizes(table))
        for directories in _parts(small):
            old, new = _compacted(lake, table, directories)
            before, after = before + old, after + new
            tell(f"{table}: {old:,} files of {len(directories):,} directories became {new:,}")
    lake.tidy()
    return Compacted(before, after)


def small_files(sizes: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the files that are worth rewriting, and their sizes, by directory."""
    directories: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in sizes.items():
        if size < _SMALL_BYTES:
            directories[path.rpartition("/")[0]][path] = size
    return {directory: files for directory, files in directories.items() if len(files) > 1}


def _parts(directories: dict[str, dict[str, int]]) -> Iterator[list[str]]:
    names = sorted(directories)
    for start in range(0, len(names), _DIRECTORIES):
        yield names[start : start + _DIRECTORIES]


def _compacted(lake: Lake, table: str, directories: list[str]) -> tuple[int, int]:
    for _ in range(_ATTEMPTS):
        lake.refresh()
        number = lake.last.number
        sizes = {path: size for name in directories for path, size in lake.files.sizes(name).items()}
        files = {path: size for small in small_files(sizes).values() for path, size in small.items()}
        if not files:
            return 0, 0
        try:
            return len(files), _rewrite(lake, table, files)
        except (LakeChanged, *READ_FAILED):
            lake.refresh()
            if lake.last.number == number:
                raise
    raise Unavailable(
        f"the lake {lake.files.root} changes too fast; stop `pipeline run` for the time being", key="lake"
    )


def _rewrite(lake: Lake, table: str, files: dict[str, int]) -> int:
    """Write the rows of some files into fewer, and commit; returns how many these are."""
    staging = lake.begin()
    rows = lake.read(table, files)
    count = rows.count()
    rows_per_file = ROWS_PER_FILE if table == "messages" else max(1, FILE_BYTES * count // max(1, sum(files.values())))
    paths = staging.write(table, gathered(rows, _ORDER[table]), rows_per_file)
    if staging.read(table).count() != count:
        staging.drop()
        raise Unavailable(f"rows of {table} got lost while they were rewritten; nothing was changed", key="lake")
    if table == "messages":
        name_files(staging, paths)
    if table == "events":
        name_events(staging, paths, spans_of(files))
    staging.replace(files)
    staging.commit({}, 0)
    return len(paths)
