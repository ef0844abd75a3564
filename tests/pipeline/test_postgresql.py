"""Source and sink on a broker whose store is in PostgreSQL: Spark knows no difference."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.source import register
from tests.pipeline.traffic import connected, url
from tests.served import FREE_PORTS, Served

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path, database: str) -> Iterator[Served]:
    """Run a broker with a database."""
    with Served(tmp_path, *FREE_PORTS, "--store", database) as running:
        yield running


def test_what_spark_writes_is_what_it_reads(spark: SparkSession, served: Served) -> None:
    """All of it and once, also by a broker that was killed and came back."""
    register(spark)
    rows = spark.sql("select cast(id as string) body, map('id', cast(id as string)) headers from range(0, 5000, 1, 3)")
    for _ in range(2):
        writer = rows.write.format("penstock").options(url=url(served), queue="lines", query="copy", batch="0")
        writer.mode("append").save()
        served.revive()
    with connected(served) as broker:
        assert broker.status("lines")["ready"] == 5000

    events = spark.read.format("penstock").options(url=url(served), channel="lines").load()
    published = events.where("kind = 'publish'").select("body", "headers.id").collect()
    assert sorted(int(bytes(body)) for body, _ in published) == list(range(5000))
    assert all(bytes(body).decode() == number for body, number in published)
