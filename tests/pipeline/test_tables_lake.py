"""A commit to a lake holds whole or not at all, wherever its writer dies and whoever else writes."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.model.errors import BadRequest
from penstock.pipeline.jobs import run as job
from penstock.pipeline.log_client import LogClient
from penstock.pipeline.tables.events import events
from penstock.pipeline.tables.files import Files
from penstock.pipeline.tables.lake import Lake, LakeChanged, Staging
from tests.pipeline.histories import Row, history
from tests.pipeline.test_tables import frame

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OLD, NEW = history(seed=1, steps=6), history(seed=2, steps=9)


class Died(Exception):
    """The writer is dead."""


def staged(lake: Lake, records: list[Row]) -> Staging:
    """Stage records that take the place of all that is in the lake."""
    staging = lake.begin()
    staging.write("events", events(frame(lake.spark, records)))
    staging.replace(lake.paths("events"))
    return staging


def content(lake: Lake) -> list[tuple[int, str]]:
    """Return what is in the lake."""
    return sorted((row["position"], row["kind"]) for row in lake.read("events").collect())


def told(records: list[Row]) -> list[tuple[int, str]]:
    """Return records as `content` has them."""
    return [(row["position"], row["kind"]) for row in records]


@pytest.fixture(scope="module")
def old(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with the old records."""
    place = tmp_path_factory.mktemp("lakes") / "old"
    staged(Lake(spark, str(place)), OLD).commit({"0": 1})
    return place


def die_at(lake: Lake, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writer die before one of the changes that it makes to the file system."""
    changes = count()

    def dying(change: Any) -> Any:
        def changed(*arguments: Any) -> Any:
            if next(changes) == wanted:
                raise Died
            return change(*arguments)

        return changed

    for name in ("create", "move", "remove"):
        monkeypatch.setattr(lake.files, name, dying(getattr(lake.files, name)))


def test_a_commit_holds_whole_or_not_at_all(
    spark: SparkSession, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever change to the file system was the last one made, whoever opens the lake finds one state or the other."""
    found = []
    for last_change in count():
        place = tmp_path / str(last_change)
        shutil.copytree(old, place)
        lake = Lake(spark, str(place))
        staging = staged(lake, NEW)
        die_at(lake, last_change, monkeypatch)
        try:
            staging.commit({"0": 2})
        except Died:
            found.append(content(Lake(spark, str(place))))
            assert Lake(spark, str(place)).last.progress == {"0": 1 if last_change == 0 else 2}
        else:
            break
    assert found == [told(OLD)] + [told(NEW)] * (len(found) - 1)
    assert len(found) > 4


def test_a_commit_that_was_cut_short_does_not_count(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """Half of its JSON is none, and another may take its number."""
    place = tmp_path / "lake"
    shutil.copytree(old, place)
    whole = next((place / "_commits").glob("*1.json")).read_text(encoding="utf-8")
    cut = place / "_commits" / "000000000002.json"
    cut.write_text(whole[: len(whole) // 2], encoding="utf-8")
    assert content(Lake(spark, str(place))) == told(OLD)
    assert cut.exists(), "its writer may be about to write the rest"
    os.utime(cut, (0, 0))
    lake = Lake(spark, str(place))
    assert staged(lake, NEW).commit({"0": 2}).number == 2
    assert content(Lake(spark, str(place))) == told(NEW)


def test_of_two_writers_one_is_sent_away(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """Whoever planned on a state that is over has to plan again; what it staged is seen by nobody."""
    place = tmp_path / "lake"
    shutil.copytree(old, place)
    first, second = Lake(spark, str(place)), Lake(spark, str(place))
    late = staged(second, OLD[:1])
    staged(first, NEW).commit({"0": 2})
    with pytest.raises(LakeChanged):
        late.commit({"0": 2})
    assert content(Lake(spark, str(place))) == told(NEW)


def test_of_many_that_make_a_file_one_makes_it(spark: SparkSession, tmp_path: Path) -> None:
    """Even at the same moment: that is what keeps two commits from having one number."""
    makers, rounds = [Files(spark, str(tmp_path)) for _ in range(4)], 100
    together = Barrier(len(makers))

    def make(files: Files) -> list[bool]:
        made = []
        for number in range(rounds):
            together.wait()
            made.append(files.create(f"_commits/{number}", b"{}"))
        return made

    with ThreadPoolExecutor(len(makers)) as pool:
        found = list(pool.map(make, makers))
    assert [sum(one) for one in zip(*found, strict=True)] == [1] * rounds


def test_a_directory_that_spark_takes_for_a_pattern_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It would read other files than it has written; blanks and the like it takes as they are."""
    Lake(spark, str(tmp_path / "with blank"))
    for name in ("lake[1]", "lake{1}", "lake*"):
        with pytest.raises(BadRequest, match="pattern"):
            Lake(spark, str(tmp_path / name))


def test_rows_that_are_held_stay_while_others_commit(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """A commit between listing files and reading them, or after that, takes nothing from who uses the rows."""
    place = tmp_path / "lake"
    shutil.copytree(old, place)
    lake, other = Lake(spark, str(place)), Lake(spark, str(place))
    commits = iter([NEW])

    def choose() -> DataFrame:
        rows = lake.read("events")
        for records in commits:
            staged(other, records).commit({"0": 2})
        return rows

    rows = lake.held(choose)
    staged(other, OLD).commit({"0": 3})
    assert sorted((row["position"], row["kind"]) for row in rows.collect()) == told(NEW)


def test_files_that_go_while_they_are_read_are_read_anew(
    spark: SparkSession, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who holds rows, and by who takes a batch in while another compacts the lake."""
    place = tmp_path / "lake"
    shutil.copytree(old, place)
    lake, other = Lake(spark, str(place)), Lake(spark, str(place))
    commits = iter([NEW, OLD])

    def taking(lake: Lake, _batch: DataFrame, _headers: object) -> None:
        rows = lake.read("events")
        other.refresh()
        for records in islice(commits, 1):
            staged(other, records).commit({"0": other.last.number + 1})
        rows.collect()

    monkeypatch.setattr(job, "take_in", taking)
    job.Batches(lake, LogClient("http://127.0.0.1:1"), print)._taken(lake.read("events"))

    refreshes, refresh = count(), lake.refresh

    def refreshing() -> None:
        refresh()
        if next(refreshes) == 1:
            staged(other, NEW).commit({"0": 4})

    monkeypatch.setattr(lake, "refresh", refreshing)
    rows = lake.held(lambda: lake.read("events"))
    assert sorted((row["position"], row["kind"]) for row in rows.collect()) == told(NEW)


def test_rows_that_cannot_be_read_are_no_reason_to_try_for_ever(spark: SparkSession, old: Path) -> None:
    """Only a commit is."""
    with pytest.raises(PySparkException):
        Lake(spark, str(old)).held(lambda: spark.range(1).selectExpr("raise_error('no')"))


def test_old_commits_go(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """The last ones stay, for a person who wants to know what happened."""
    place = tmp_path / "lake"
    shutil.copytree(old, place)
    last = json.loads(next((place / "_commits").glob("*1.json")).read_text(encoding="utf-8"))
    for number in range(2, 150):
        path = place / "_commits" / f"{number:012}.json"
        path.write_text(json.dumps({**last, "number": number, "staging": ""}), encoding="utf-8")
    lake = Lake(spark, str(place))
    assert lake.last.number == 149
    lake.tidy()
    assert len(list((place / "_commits").glob("*.json"))) == 100
    assert content(Lake(spark, str(place))) == told(OLD)


def test_a_file_system_that_is_none_is_told(spark: SparkSession) -> None:
    """In a sentence."""
    with pytest.raises(BadRequest, match="cannot open"):
        Lake(spark, "gopher://somewhere/lake")
