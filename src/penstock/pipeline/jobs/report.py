"""`penstock pipeline report`: the tables of a lake as one page."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.model.errors import NoObject
from penstock.pipeline.report.figures import figures_of
from penstock.pipeline.report.page import page
from penstock.pipeline.tables.lake import Lake


def write_report(spark: SparkSession, directory: str, output: Path) -> None:
    """Write the report of a lake into a file."""
    figures = figures_of(Lake(spark, directory))
    if figures is None:
        raise NoObject(f"there is nothing in the lake {directory}; fill it by `penstock pipeline run`", key="lake")
    output.write_text(page(figures, directory), encoding="utf-8")
