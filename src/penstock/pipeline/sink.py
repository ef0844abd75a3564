"""The sink `penstock` of Spark: rows become messages of queues and topics, each batch whole and once.

Each task stages its rows on the broker, where nobody sees them. The driver names the stages of the tasks that won, and the
broker publishes them all or none; it remembers the last batch of each query, so a second time changes nothing.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.model.errors import BadRequest
from penstock.pipeline.broker_client import BrokerClient
from penstock.pipeline.sink_options import RowMaker, SinkOptions
from penstock.pipeline.stage_client import Batch, Stage, drop, publish


@dataclass(slots=True)
class Staged(WriterCommitMessage):
    """What a task has staged; a task without rows has no stage."""

    query: str
    stage: str | None
    rows: int


def stage_rows(options: SinkOptions, batch: Batch, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Put the rows of a task onto the broker, on a worker."""
    client, rows_of = BrokerClient(options.url), RowMaker(options)
    stage = Stage(client, batch)
    try:
        for one in batches:
            for row in rows_of(one):
                stage.add(row)
        stage.close()
    except BaseException:
        stage.drop()
        raise
    return Staged(batch.query, stage.name if stage.rows else None, stage.rows)


def decide(options: SinkOptions, batch: Batch, messages: list[WriterCommitMessage | None]) -> None:
    """Have what the winning tasks staged published."""
    won = [message for message in messages if isinstance(message, Staged)]
    if len(won) != len(messages):
        raise BadRequest("a task ended without saying what it staged; run the batch again", key="stages")
    stages = [message.stage for message in won if message.stage is not None]
    if stages:
        publish(BrokerClient(options.url), batch, stages, sum(message.rows for message in won))


def throw_away(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Throw away what tasks have staged of a batch that failed."""
    client = BrokerClient(options.url)
    for message in messages:
        if isinstance(message, Staged) and message.stage is not None:
            drop(client, message.stage)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once, under an id of its own or one that the user gives."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._batch = Batch(options.query or uuid.uuid4().hex, options.batch or 0, options.query is not None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        return stage_rows(self._options, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all of it."""
        decide(self._options, self._batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Throw all of it away."""
        throw_away(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; Spark tells the tasks which query and batch they belong to."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or number is None:
            raise BadRequest(
                "Spark does not tell this task its query and batch; the sink needs 4.2 or later", key="query"
            )
        return stage_rows(self._options, Batch(query, int(number), is_stream=True), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # as Spark calls it
        """Publish a batch."""
        queries = {message.query for message in messages if isinstance(message, Staged)}
        for query in queries:
            decide(self._options, Batch(query, batchId, is_stream=True), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # the same
        """Throw a batch away."""
        throw_away(self._options, messages)
