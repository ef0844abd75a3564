"""The options and columns of the sink: what they make of rows, and what is said of those that cannot be."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.model.errors import BadRequest
from penstock.model.staged import StagedRow
from penstock.pipeline.sink_options import RowMaker, SinkOptions, sink_options

pytestmark = pytest.mark.usefixtures("spark")  # which reads the types that texts name

URL = {"url": "http://localhost:8080"}
QUEUE = {**URL, "queue": "q"}


def options(given: dict[str, str], schema: str = "body string", *, overwrite: bool = False) -> SinkOptions:
    return sink_options(given, StructType.fromDDL(schema), overwrite=overwrite, is_stream=False)


def test_options_hold_for_all_rows_that_do_not_say_otherwise() -> None:
    """A null in a column says nothing."""
    maker = RowMaker(options({**QUEUE, "tags": "a,b", "priority": "7", "delay": "1.5"}, "body string, priority int"))
    batch = pa.RecordBatch.from_pydict({"body": ["ü", None], "priority": pa.array([None, 2], pa.int32())})

    assert list(maker(batch)) == [
        StagedRow("ü".encode(), queue="q", tags=["a", "b"], priority=7, delay=1.5),
        StagedRow(b"", queue="q", tags=["a", "b"], priority=2, delay=1.5),
    ]


def test_columns_say_all_that_a_message_has() -> None:
    """Headers from a map, tags from an array or a text with commas, seconds from any number."""
    schema = (
        "body binary, queue string, topic string, tags array<string>, priority long, headers map<string,string>, "
        "delay decimal(10,2), ttl int, key string, group string, dedup_id string"
    )
    columns = {
        "body": [b"\xff"], "queue": ["q"], "topic": pa.array([None], pa.string()), "tags": [["x", "y"]], "priority": [1],
        "headers": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), "delay": [2], "ttl": [3], "key": ["k"],
        "group": ["g"], "dedup_id": ["d"],
    }  # fmt: skip
    row = StagedRow(b"\xff", "q", None, ["x", "y"], 1, {"a": "b"}, 2.0, 3.0, "k", "g", "d")

    assert list(RowMaker(options(URL, schema))(pa.RecordBatch.from_pydict(columns))) == [row]
    commas = pa.RecordBatch.from_pydict({**columns, "tags": ["x,y"]})
    assert list(RowMaker(options(URL, schema.replace("array<string>", "string")))(commas)) == [row]


@pytest.mark.parametrize(
    ("given", "schema", "said"),
    [
        ({}, "body string", "the option `url` is missing"),
        (URL, "body string", "option or column `queue` or `topic`"),
        ({**QUEUE, "quue": "x"}, "body string", "no option 'quue'"),
        (QUEUE, "text string", "the column `body` is missing"),
        (QUEUE, "body int", "'body' is of type int; it must be binary or string"),
        (QUEUE, "body string, headers string", "'headers' is of type string; it must be map<string,string>"),
        (
            QUEUE,
            "body string, headers map<string,int>",
            "'headers' is of type map<string,int>; it must be map<string,string>",
        ),
        (QUEUE, "body string, tags array<int>", "'tags' is of type array<int>; it must be array<string> or string"),
        ({**QUEUE, "query": "my query", "batch": "1"}, "body string", "query is 'my query'; it must be letters"),
        (QUEUE, "body string, id long", "nothing is known of a column 'id'.*Leave it out"),
        ({**QUEUE, "priority": "high"}, "body string", "priority is 'high'"),
        ({**QUEUE, "delay": "1h"}, "body string", "delay is '1h'; it must be seconds"),
        ({**QUEUE, "query": "x"}, "body string", "`query` and `batch` go together"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], schema: str, said: str) -> None:
    """In one sentence that names the option or column."""
    with pytest.raises(BadRequest, match=said):
        options(given, schema)


def test_messages_cannot_be_overwritten() -> None:
    """A broker has no table to empty first; streams say so without meaning it."""
    with pytest.raises(BadRequest, match="append"):
        options(QUEUE, overwrite=True)
    sink_options(QUEUE, StructType.fromDDL("body string"), overwrite=True, is_stream=True)
