"""A lake: the tables in Parquet under one directory, changed by commits that happen whole or not at all.

    events/day=2026-11-19/folder=orders/<file>.parquet        and so for every table
    _staging/<commit>/events/day=…/folder=…/<file>.parquet    what a commit will bring, unseen
    _commits/000000000012.json                                the commit: it holds from the moment this file is there
    _checkpoint/                                              where Spark's query remembers its place

A commit first stages its files, then writes its JSON: which staged files go where, which files they replace, and up to
which position the change log is in the lake. Only then files are moved. Whoever opens the lake moves what the last commit
left unmoved, so dying at any moment leaves either the state before or the state after. Two writers at once cannot both
commit: the JSON has the number after the last, and must not be there yet.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.model.errors import Unavailable
from penstock.pipeline.tables.files import Files
from penstock.pipeline.tables.schemas import TABLES
from penstock.pipeline.tables.signatures import FAILURE_HEADERS

CHECKPOINT = "_checkpoint"
_COMMITS, _STAGING = "_commits", "_staging"
#: Commits are kept for a person who wants to know what happened; the last one alone matters.
COMMITS_KEPT = 100
#: What was staged so long ago was staged by somebody who died.
_STAGING_AGE_SECONDS = 86400.0
#: The file of a commit takes milliseconds to be written; if it is not whole after so long it never will be.
_WRITING_SECONDS = 30.0
#: What Spark raises when a file that it has listed is gone: PySpark passes some errors of Java on as they are.
READ_FAILED = (PySparkException, Py4JJavaError)
#: How often reading is begun anew because of a commit.
_ATTEMPTS = 10


@dataclass(slots=True)
class Commit:
    """What a commit changes. `progress`: the last position in the lake, by shard."""

    number: int = 0
    staging: str = ""
    progress: dict[str, int] = field(default_factory=dict)
    #: Staged files and where they go, and files that are no longer needed.
    moves: dict[str, str] = field(default_factory=dict)
    removes: list[str] = field(default_factory=list)
    rows: int = 0
    #: Headers that are part of the signatures of dead letters, from this commit on.
    signature_headers: list[str] = field(default_factory=lambda: list(FAILURE_HEADERS))


class LakeChanged(Unavailable):
    """Somebody else has committed since; what was planned on the state before has to be planned anew."""


class Lake:
    """See the module."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self.spark = spark
        self.files = Files(spark, directory)
        self.last = Commit()
        self.refresh()

    def refresh(self) -> None:
        """Learn of the last commit, and bring it to its end if whoever made it could not."""
        for name in reversed(self.files.names(_COMMITS)):
            commit = self._commit_of(f"{_COMMITS}/{name}")
            if commit is not None:
                self.last = commit
                self._apply(commit)
                return

    def read(self, table: str, paths: Iterable[str] | None = None) -> DataFrame:
        """Return a table, or some of its files."""
        if paths is None:
            paths = [table] if self.files.exists(table) else []
        return self._frame(table, self.files.url(table), [self.files.url(path) for path in paths])

    def held(self, choose: Callable[[], DataFrame]) -> DataFrame:
        """Return rows that `choose` reads, kept beside the lake: whatever is committed while they are used, they stay.

        Files are listed first and read later, and a commit takes some away; then it is begun anew.
        """
        for _ in range(_ATTEMPTS):
            self.refresh()
            number = self.last.number
            rows = choose()
            self.refresh()
            if self.last.number != number:
                continue
            try:
                return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            except READ_FAILED:
                self.refresh()
                if self.last.number == number:
                    raise
        raise Unavailable(
            f"the lake {self.files.root} changes faster than it can be read; stop `pipeline run` for the time being",
            key="lake",
        )

    def paths(self, table: str, places: Iterable[tuple[str, str]] | None = None) -> list[str]:
        """Return the files of a table, or of some days and folders of it."""
        if places is None:
            return list(self.files.sizes(table))
        return [path for day, folder in places for path in self.files.sizes(f"{table}/day={day}/folder={folder}")]

    def begin(self) -> "Staging":
        """Return the place for the files of the next commit."""
        return Staging(self, uuid.uuid4().hex)

    def commit(self, commit: Commit) -> None:
        """Make the commit hold, and move its files."""
        content = json.dumps(asdict(commit), indent=1).encode()
        if not self.files.create(_commit_path(commit.number), content):
            raise LakeChanged(
                f"another job has changed the lake {self.files.root} meanwhile; run this again", key="lake"
            )
        self.last = commit
        self._apply(commit)

    def tidy(self) -> None:
        """Remove old commits, and what was staged by those who died."""
        for name in self.files.names(_COMMITS)[:-COMMITS_KEPT]:
            self.files.remove(f"{_COMMITS}/{name}")
        for name in self.files.names(_STAGING):
            if self.files.age_seconds(f"{_STAGING}/{name}") > _STAGING_AGE_SECONDS:
                self.files.remove(f"{_STAGING}/{name}")

    def _apply(self, commit: Commit) -> None:
        staging = f"{_STAGING}/{commit.staging}"
        if not commit.staging or not self.files.exists(staging):
            return
        for path in commit.removes:
            self.files.remove(path)
        for source, target in commit.moves.items():
            self.files.move(f"{staging}/{source}", target)
        self.files.remove(staging)

    def _commit_of(self, path: str) -> Commit | None:
        """Return a commit; None for one that is being written, or whose writer died then, which makes room for another."""
        try:
            return Commit(**json.loads(self.files.read(path)))
        except ValueError:
            if self.files.age_seconds(path) > _WRITING_SECONDS:
                self.files.remove(path)
            return None

    def _frame(self, table: str, base: str, urls: list[str]) -> DataFrame:
        schema = TABLES[table]
        if not urls:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).option("basePath", base).parquet(*urls)


class Staging:
    """The files of a commit to be, which nobody sees."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self.name = name
        self._moves: dict[str, str] = {}
        self._removes: list[str] = []

    def write(self, table: str, rows: DataFrame, rows_per_file: int = 0) -> list[str]:
        """Write rows as files of a table; returns their paths, which are also those that they will have in the lake."""
        files = self._lake.files
        writer = rows.write.mode("overwrite").partitionBy("day", "folder")
        writer.option("maxRecordsPerFile", rows_per_file).parquet(files.url(self._place(table)))
        staged = files.sizes(self._place(table))
        paths = [path.removeprefix(self._place("")) for path in staged]
        self._moves.update({path: path for path in paths})
        return paths

    def read(self, table: str, paths: Iterable[str] | None = None) -> DataFrame:
        """Return the rows of a table that were staged, or some of its files."""
        files = self._lake.files
        wanted = [path for path in self._moves if path.startswith(f"{table}/")] if paths is None else paths
        urls = [files.url(self._place(path)) for path in wanted]
        return self._lake._frame(table, files.url(self._place(table)), urls)  # noqa: SLF001  # one thing in two parts

    def rename(self, path: str, target: str) -> None:
        """Let a staged file have another path in the lake."""
        self._moves[path] = target

    def replace(self, paths: Iterable[str]) -> None:
        """Let files of the lake go with the commit."""
        self._removes.extend(paths)

    def commit(self, progress: dict[str, int], rows: int = 0, signature_headers: Sequence[str] | None = None) -> Commit:
        """Commit what was staged."""
        lake = self._lake
        commit = Commit(
            number=lake.last.number + 1,
            staging=self.name,
            progress={**lake.last.progress, **progress},
            moves=self._moves,
            removes=self._removes,
            rows=rows,
            signature_headers=list(lake.last.signature_headers if signature_headers is None else signature_headers),
        )
        lake.commit(commit)
        return commit

    def drop(self) -> None:
        """Throw away what was staged."""
        self._lake.files.remove(f"{_STAGING}/{self.name}")

    def _place(self, path: str) -> str:
        return f"{_STAGING}/{self.name}/{path}"


def _commit_path(number: int) -> str:
    return f"{_COMMITS}/{number:012}.json"
