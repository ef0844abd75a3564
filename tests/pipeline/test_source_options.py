"""The options of the source: what they mean, and what is said of those that cannot be."""

import pytest
from pyspark.sql.types import StructType

from penstock.model.errors import BadRequest
from penstock.model.records import Kind
from penstock.pipeline.source import PenstockDataSource
from penstock.pipeline.source_options import EARLIEST, LATEST, Place, source_options

URL = {"url": "http://localhost:8080"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("1234", Place(position=1234)),
        ('{"0": 1234}', Place(position=1234)),
        ("1970-01-01T00:01:00Z", Place(time=60.0)),
        ("1970-01-01T01:01:00+01:00", Place(time=60.0)),
        ("1970-01-01 00:01:00", Place(time=60.0)),
    ],
)
def test_places_are_understood(text: str, place: Place) -> None:
    """As positions, times and ends; a time without a zone is in UTC."""
    assert source_options({**URL, "startingPosition": text}).starting == place
    assert source_options({**URL, "endingPosition": text}).ending == place


def test_columns_that_are_not_there_are_refused() -> None:
    """Before a worker looks for them."""
    source = PenstockDataSource(URL)
    source.reader(StructType.fromDDL("position int, kind string"))
    for make in (source.reader, source.streamReader):
        with pytest.raises(BadRequest, match="no column 'foo'; there are shard, position"):
            make(StructType.fromDDL("position long, foo string"))


def test_stages_are_kinds_or_what_publishers_call_them() -> None:
    """And a selection without any wants all."""
    assert source_options(URL).selection.kinds is None
    assert source_options({**URL, "stages": "finish, drop"}).selection.kinds == {
        Kind.FINISH, Kind.POP, Kind.FAST_POP, Kind.DROP,
    }  # fmt: skip
    assert source_options({**URL, "stages": "client_gone"}).selection.kinds == {Kind.CLIENT_GONE}


def test_tags_are_a_set() -> None:
    """No tags are told from any tags."""
    assert source_options(URL).selection.tags is None
    assert source_options({**URL, "tags": ""}).selection.tags == frozenset()
    assert source_options({**URL, "tags": "b,a"}).selection.tags == {"a", "b"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": ""}, "the option `url` is missing"),
        ({"readr": "x"}, "no option 'readr'; there are url, reader"),
        ({"startingPosition": "yesterday"}, "must be earliest, latest, a time such as"),
        ({"startingPosition": '{"1": 5}'}, "names shards that there are not"),
        ({"endingPosition": "[]"}, "must be earliest"),
        ({"maxRowsPerBatch": "0"}, "must be a whole number above 0"),
        ({"maxBytesPerBatch": "1k"}, "must be a whole number above 0"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"stages": "done"}, "no stage 'done'; there are ready, assign"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], said: str) -> None:
    """In one sentence that names the option."""
    with pytest.raises(BadRequest, match=said):
        source_options({**URL, **options})
