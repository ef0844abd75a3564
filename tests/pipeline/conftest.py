"""One Spark for all tests of the pipeline, and brokers for it to read."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import require
from tests.served import Served


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark on two cores of this machine."""
    require(shutil.which("java"), "java is not installed")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("penstock tests")
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Run a broker with a journal."""
    with Served(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker with a journal for all tests of a module that want nothing special."""
    with Served(tmp_path_factory.mktemp("shared")) as running:
        yield running
