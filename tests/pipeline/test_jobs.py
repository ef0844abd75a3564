"""`penstock pipeline` from a broker to a lake, to a page, and back to the broker."""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock.sync
from penstock.cli import app
from tests.pipeline.test_tables import INTERPRETED
from tests.served import Served

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from penstock.pipeline.jobs.sending import Pace
from penstock.pipeline.source import register
from penstock.pipeline.tables.lake import CHECKPOINT, Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
#: A queue whose name a careless page would take for markup.
SLY = '<b onclick="x">&amp;'
ORDERS, DOOMED = 30, 6


class Archive:
    """A broker, and a lake filled from it."""

    def __init__(self, spark: SparkSession, served: Served, directory: Path) -> None:
        self.spark = spark
        self.url = "penstock://{}:{}".format(*served.native)
        self.place = directory / "lake"
        self.page = directory / "report.html"

    def command(self, *arguments: str) -> Result:
        """Run a command of the pipeline on the lake; it must succeed."""
        done = self.refused(*arguments)
        assert done.exit_code == 0, done.output
        return done

    def refused(self, *arguments: str) -> Result:
        """Run a command of the pipeline on the lake, however it ends."""
        return CliRunner().invoke(app, ["pipeline", *arguments, "--lake", str(self.place)], catch_exceptions=False)

    def run(self, *options: str) -> Result:
        """Bring into the lake what is new."""
        return self.command("run", "--url", self.url, *options)

    @property
    def lake(self) -> Lake:
        """The lake as somebody finds it who opens it now."""
        return Lake(self.spark, str(self.place))

    def positions(self) -> list[int]:
        """Return the positions of all records in the lake."""
        return sorted(row["position"] for row in self.lake.read("events").select("position").collect())


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """Let messages go through a broker, some of them to their death, and archive them."""
    directory = tmp_path_factory.mktemp("pipeline")
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    with Served(directory) as served:
        archive = Archive(spark, served, directory)
        _play(archive.url)
        archive.run()
        yield archive
    for name in INTERPRETED:
        spark.conf.unset(name)


def _play(url: str) -> None:
    with penstock.sync.connect(url) as broker:
        broker.create_queue("orders", tags=["eu"], retry_limit=1)
        for number in range(ORDERS):
            said = {"headers": {"number": str(number)}, "key": f"key {number}", "group": f"group {number}"}
            broker.enqueue("orders", b"order %d" % number, tags=["eu"], priority=9, **said)
        for number in range(ORDERS - 5):
            message = broker.poll("orders", tags=["eu"])
            if number < DOOMED:
                broker.fail(message, reason=f"oven {number} is cold")
            else:
                broker.complete(message)
        broker.enqueue(SLY, b"\xff\x00")


def test_what_is_in_the_log_is_in_the_lake(archive: Archive) -> None:
    """Each record once, though the second run has another reader, which begins at the beginning."""
    with penstock.sync.connect(archive.url) as broker:
        broker.enqueue("later", b"more")
    shutil.rmtree(archive.place / CHECKPOINT)
    archive.run("--reader", "another", "--rows", "40")
    register(archive.spark)
    log = archive.spark.read.format("penstock").option("url", archive.url).load()
    found = archive.positions()
    expected = sorted(row["position"] for row in log.where(f"position <= {found[-1]}").select("position").collect())
    assert found == expected
    assert len(found) > 2 * ORDERS


def test_messages_agree_with_the_broker(archive: Archive) -> None:
    """The table counts what the broker counts."""
    with penstock.sync.connect(archive.url) as broker:
        told = broker.status("orders", tags=["eu"])
    rows = archive.lake.read("messages").where("channel = 'orders'").groupBy("outcome").count().collect()
    counts = {row["outcome"]: row["count"] for row in rows}
    assert counts == {"finish": told.totals["finished"], "drop": told.totals["dead_lettered"], None: told.ready}
    assert counts == {"finish": ORDERS - 5 - DOOMED, "drop": DOOMED, None: 5}


LETTERS = (
    "replay",
    "--from",
    "dead_letters",
    "--to",
    "again",
    "--where",
    "signature like 'oven%' and text <> 'order 0'",
)


def test_a_dry_run_shows_what_would_go_where(archive: Archive) -> None:
    """By queue and signature, with an example that cannot trouble a terminal; nobody is sent anything."""
    told = archive.command(*LETTERS, "--url", "penstock://127.0.0.1:1", "--dry-run").output
    assert f"again: {DOOMED - 1}\n  {DOOMED - 1} × oven <number> is cold\n    message " in told
    assert f"order {DOOMED - 1}\n{DOOMED - 1} messages would be sent.\n" in told
    messages = archive.command("replay", "--where", f"channel = '{SLY}' or sequence = 1", "--dry-run").output
    assert f"{SLY}: 1\n  for example\n    message " in messages
    assert "\x00" not in messages


def test_dead_letters_leave_their_queue_once(archive: Archive) -> None:
    """Chosen by SQL on their signatures; run again, nothing goes twice, before the lake knows of it and after."""
    with penstock.sync.connect(archive.url) as broker:
        assert "5 messages were sent." in archive.command(*LETTERS, "--url", archive.url, "--rate", "1000").output
        assert (broker.status("again").ready, broker.status("DLQ.orders", tags=["eu"]).ready) == (5, 1)
        again = archive.command(*LETTERS, "--url", archive.url).output
        assert "0 messages were sent.\n5 were no longer waiting in their dead letter queue." in again
        message = broker.poll("again")
        assert (bytes(message.body), message.priority) == (b"order 1", 9)
        assert message.headers["number"] == "1"
        assert message.headers["death-reason"] == "oven 1 is cold"
        assert broker.status("again").ready == 4
        archive.run()
        assert archive.command(*LETTERS, "--dry-run").output == "0 messages would be sent.\n"
        republished = archive.lake.read("events").where(f"channel = 'again' and sequence = {message.sequence}")
        assert republished.where("key = 'key 1' and group = 'group 1'").count() == 1


def test_copies_of_dead_letters_leave_them_where_they_are(archive: Archive) -> None:
    """With --keep, also of those that are in their queue no longer; the archive has none of them twice."""
    keep = [*LETTERS[:4], "kept", "--keep", *LETTERS[5:]]
    with penstock.sync.connect(archive.url) as broker:
        before = broker.status("DLQ.orders", tags=["eu"]).ready
        assert "5 messages were sent." in archive.command(*keep, "--url", archive.url).output
        assert (broker.status("kept").ready, broker.status("DLQ.orders", tags=["eu"]).ready) == (5, before)
        message = broker.poll("kept")
        assert (bytes(message.body), message.priority) == (b"order 1", 9)
    archived = archive.command("replay", "--where", "text = 'order 1' and channel = 'orders'", "--dry-run").output
    assert archived.endswith("\n1 messages would be sent.\n")
    copies = archive.command("replay", "--where", "channel in ('again', 'DLQ.orders')", "--dry-run").output
    assert copies == "0 messages would be sent.\n"


def test_letters_that_have_no_room_are_told(archive: Archive) -> None:
    """They stay, and the exit code is 1."""
    with penstock.sync.connect(archive.url) as broker:
        broker.create_queue("small", max_length=1)
        broker.enqueue("small", b"full")
        done = archive.refused("replay", "--url", archive.url, "--from", "dead_letters", "--to", "small")
        assert done.exit_code == 1
        assert "1 stay there" in done.output
        assert broker.status("DLQ.orders", tags=["eu"]).ready == 1


def test_the_pace_is_kept() -> None:
    """A tenth of a second's messages at a time, and a pause for each that came too early."""
    pace = Pace(50.0)
    assert pace.at_once == 5
    assert 9.0 < pace.pause_seconds(500) <= 10.0
    assert (Pace(0.5).at_once, Pace(None).pause_seconds(10**9)) == (1, 0.0)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("colour = 3", "colour"),
        ("cast(text as int) > 3", "CAST_INVALID_INPUT|cannot be cast"),
        ("priority =", "Syntax"),
    ],
)
def test_a_filter_that_makes_no_sense_is_told(archive: Archive, where: str, told: str) -> None:
    """In a sentence, with the columns that there are, and exit code 2; also what shows only in some rows."""
    done = archive.refused("replay", "--url", archive.url, "--where", where)
    assert done.exit_code == 2
    assert re.search(told, done.output, re.IGNORECASE), done.output
    assert "priority, headers" in done.output
    assert done.output.count("\n") == 2


class Page(HTMLParser):
    """Everything that a page has, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}, (tag, attrs)
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_report_shows_it_and_loads_nothing(archive: Archive) -> None:
    """One file with the plots, the queues under their own names, and the dead letters with an example."""
    assert str(archive.page) in archive.command("report", "--output", str(archive.page)).output.replace("\n", "")
    text = archive.page.read_text(encoding="utf-8")
    assert "url(" not in text
    assert "@import" not in text
    page = Page()
    page.feed(text)
    assert page.tags.count("svg") == 5
    assert not {"script", "link", "img", "iframe", "b onclick"} & set(page.tags)
    shown = " ".join(page.texts)
    for expected in (
        SLY,
        "orders{eu}",
        "oven <number> is cold",
        "DLQ.orders{eu}",
        "Throughput",
        "Depth",
        "Waits",
        "Work",
    ):
        assert expected in shown, expected
    tiles = dict(re.findall(r"<h2>([a-z ]+)</h2><b>([^<]*)</b>", text))
    assert (tiles["dead letters"], tiles["retried"]) == (str(DOOMED), "0")
    assert int(tiles["published"]) >= ORDERS + DOOMED + 1


def test_compaction_changes_files_and_no_rows(archive: Archive) -> None:
    """Fewer files, the same rows, and messages are found again by the names of their files."""
    before = {table: archive.lake.read(table).count() for table in ("events", "messages", "queue_minutes")}
    positions, files = archive.positions(), len(archive.lake.paths("events"))
    archive.command("compact")
    assert archive.positions() == positions
    assert {table: archive.lake.read(table).count() for table in before} == before
    assert len(archive.lake.paths("events")) < files
    with penstock.sync.connect(archive.url) as broker:
        while (message := broker.poll("orders", tags=["eu"])) is not None:
            broker.complete(message)
    archive.run()
    rows = archive.lake.read("messages").where("channel = 'orders'")
    assert {row["outcome"] for row in rows.collect()} == {"finish", "drop"}
    assert rows.count() == ORDERS


@pytest.mark.parametrize("command", ["report", "replay", "compact"])
def test_a_lake_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path, command: str) -> None:
    """Rather than that there was nothing to do: it was most likely named wrongly."""
    done = CliRunner().invoke(app, ["pipeline", command, "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 1
    assert "there is nothing in the lake" in done.output
