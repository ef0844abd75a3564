"""`penstock pipeline run`: the change log into the lake, until it is in, or for as long as there are both."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.model.errors import PenstockError, Unavailable
from penstock.pipeline.jobs.session import sentence_of
from penstock.pipeline.log_client import LogClient
from penstock.pipeline.source import register
from penstock.pipeline.tables.lake import CHECKPOINT, COMMITS_KEPT, READ_FAILED, Commit, Lake, LakeChanged
from penstock.pipeline.tables.refresh import take_in

Tell = Callable[[str], None]
#: How often a batch is planned anew when `compact` or another job has changed the lake meanwhile.
_ATTEMPTS = 3
#: How soon a signal is noticed.
_LOOK_SECONDS = 1
#: Into how many parts a batch is shuffled where nobody has said. Spark's 200 are tasks that do next to nothing: a batch has
#: a million records, and Spark does not put small parts together in a stream.
_PARTS = 8
_PARTS_NAME = "spark.sql.shuffle.partitions"


@dataclass(slots=True, frozen=True)
class Run:
    """What is to be run. `every_seconds`: until stopped, a batch so often; None: until what is there now is in.

    `signature_headers`: those that are part of signatures from now on; None: as in the lake before.
    """

    url: str
    lake: str
    reader: str
    rows_per_batch: int
    every_seconds: float | None = None
    signature_headers: tuple[str, ...] | None = None


def run(spark: SparkSession, wanted: Run, tell: Tell) -> int:
    """Bring the change log into the lake; returns how many records that were."""
    register(spark)
    if not spark.sparkContext.getConf().contains(_PARTS_NAME):
        spark.conf.set(_PARTS_NAME, _PARTS)
    batches = Batches(Lake(spark, wanted.lake), LogClient(wanted.url), tell, wanted.signature_headers)
    query = _query(spark, wanted, batches)
    try:
        _wait(query)
    except PySparkException as error:
        raise batches.failure or Unavailable(sentence_of(error), key="run") from None
    return batches.rows


def _query(spark: SparkSession, wanted: Run, batches: "Batches") -> StreamingQuery:
    source = spark.readStream.format("penstock").option("url", wanted.url).option("reader", wanted.reader)
    stream = source.option("maxRowsPerBatch", wanted.rows_per_batch).load()
    writer = stream.writeStream.queryName("penstock").foreachBatch(batches.take)
    writer = writer.option("checkpointLocation", batches.lake.files.url(CHECKPOINT))
    if wanted.every_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{wanted.every_seconds} seconds").start()


class Batches:
    """Takes batches into the lake, tells of each, and keeps what went wrong."""

    def __init__(
        self, lake: Lake, log: LogClient, tell: Tell, signature_headers: tuple[str, ...] | None = None
    ) -> None:
        self.lake = lake
        self.rows = 0
        self.failure: PenstockError | None = None
        self._log = log
        self._tell = tell
        self._signature_headers = signature_headers

    def take(self, batch: DataFrame, _number: int) -> None:
        """Take a batch in."""
        started = monotonic()
        try:
            commit = self._taken(batch)
        except PenstockError as error:
            self.failure = error
            raise
        if commit is not None:
            if commit.number % COMMITS_KEPT == 0:
                self.lake.tidy()
            self.rows += commit.rows
            position, end = max(commit.progress.values()), self._log.extent().end - 1
            self._tell(f"{monotonic() - started:.1f} s: {commit.rows:,} more, up to record {position:,} of {end:,}")

    def _taken(self, batch: DataFrame) -> Commit | None:
        """Take it in; once more if `compact` has changed the lake, or taken files away that were being read."""
        for _ in range(_ATTEMPTS - 1):
            self.lake.refresh()
            number = self.lake.last.number
            try:
                return take_in(self.lake, batch, self._signature_headers)
            except (LakeChanged, *READ_FAILED):
                self.lake.refresh()
                if self.lake.last.number == number:
                    raise
        return take_in(self.lake, batch, self._signature_headers)


def _wait(query: StreamingQuery) -> None:
    """Wait until a query has ended, by itself or by SIGTERM or Ctrl-C.

    The batch under way is ended first; a second signal does not wait for it, and then it comes again with the next run.
    """
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signals.append(number)  # Spark may be in the middle of an answer to this thread: it is asked later

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            if len(signals) > 1 or (signals and not query.status["isTriggerActive"]):
                query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
