"""Signatures of failures: what differs from one message to the next is folded, what tells failures apart is not."""

from collections.abc import Sequence

import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.pipeline.tables.signatures import FAILURE_HEADERS, NO_REASON, signature_of

pytestmark = pytest.mark.slow

CASES = {
    "order 17 failed": "order <number> failed",
    "order 4,711.50 failed after -3 tries": "order <number> failed after <number> tries",
    "worker-7 lost order17": "worker-<number> lost order<number>",
    "timed out at 2026-11-19T12:00:01.5Z": "timed out at <time>",
    "timed out on 2026-11-19 at 12:00:01": "timed out on <time> at <time>",
    "no user 550e8400-e29b-41d4-a716-446655440000": "no user <uuid>",
    "bad pointer 0xDEADbeef": "bad pointer <hex>",
    "commit 4bf92f3577b34da6 is gone": "commit <hex> is gone",
    "the facade was effaced": "the facade was effaced",
    'KeyError: "sku-81"': "KeyError: <value>",
    "customer 'Anna O.' can't pay": "customer <value> can't pay",
    "it's the user's fault": "it's the user's fault",
    "connection to 10.0.3.7:5432 refused": "connection to <number>:<number> refused",
    "line one\n\tline two": "line one line two",
    "lease expired": "lease expired",
    "": NO_REASON,
    None: NO_REASON,
}


def test_reasons_are_folded(spark: SparkSession) -> None:
    """Numbers, ids, hex, UUIDs, times and quoted values go; words stay."""
    rows = [(reason, {"other": "header"}) for reason in CASES]
    frame = spark.createDataFrame(rows, "reason string, headers map<string,string>")
    found = frame.select("reason", signature_of(F.col("reason"), F.col("headers"))).collect()
    assert {row[0]: row[1] for row in found} == CASES


NAMES: list[Sequence[str]] = [FAILURE_HEADERS, ["Content-Type"], []]
#: Headers of a dead letter whose reason is "oven 3 is cold", the names that are looked at, and the signature.
HEADERS = [
    ({"trace": "4bf92f3577b34da6", "content-type": "text/csv"}, NAMES[0], "oven <number> is cold"),
    ({"error": "E17"}, NAMES[0], "oven <number> is cold; error: E<number>"),
    ({"Exception": "KeyError('sku-81')"}, NAMES[0], "oven <number> is cold; exception: KeyError(<value>)"),
    (
        {"error-code": "503", "exception-type": "java.io.IOException"},
        NAMES[0],
        "oven <number> is cold; exception-type: java.io.IOException; error-code: <number>",
    ),
    ({"content-type": "text/csv", "error": "x"}, NAMES[1], "oven <number> is cold; Content-Type: text/csv"),
    ({"error": "x"}, NAMES[2], "oven <number> is cold"),
    ({"error": "  "}, NAMES[0], "oven <number> is cold"),
    (
        {"error": "it isn't", "exception": "isn't it"},
        NAMES[0],
        "oven <number> is cold; exception: isn't it; error: it isn't",
    ),
    (None, NAMES[0], "oven <number> is cold"),
]


def test_headers_that_tell_of_the_failure(spark: SparkSession) -> None:
    """Those that are looked at stand behind the reason, folded as it is; what others say changes nothing."""
    rows = [(number, "oven 3 is cold", headers) for number, (headers, _, _) in enumerate(HEADERS)]
    frame = spark.createDataFrame(rows, "number int, reason string, headers map<string,string>")
    folded = frame.select("number", *(signature_of(F.col("reason"), F.col("headers"), names) for names in NAMES))
    found = {row[0]: dict(zip(map(tuple, NAMES), row[1:], strict=True)) for row in folded.collect()}
    for number, (headers, names, signature) in enumerate(HEADERS):
        assert found[number][tuple(names)] == signature, headers


def test_headers_are_enough(spark: SparkSession) -> None:
    """Where nobody gave a reason."""
    frame = spark.createDataFrame([(None, {"error": "oven 3"})], "reason string, headers map<string,string>")
    assert frame.select(signature_of(F.col("reason"), F.col("headers"))).collect()[0][0] == "error: oven <number>"


def test_a_reason_from_an_earlier_death_stands_in(spark: SparkSession) -> None:
    """What a dead letter was told to have died of is its reason if nobody gives another; long ones are cut."""
    rows = [(None, {"death-reason": "oven 3 is cold"}), ("x " * 1000, None)]
    frame = spark.createDataFrame(rows, "reason string, headers map<string,string>")
    first, second = (row[0] for row in frame.select(signature_of(F.col("reason"), F.col("headers"))).collect())
    assert first == "oven <number> is cold"
    assert len(second) == 300
