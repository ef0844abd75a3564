"""The options and columns of the sink, checked before anything is written, and rows made of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from penstock.model.errors import BadRequest
from penstock.model.publication import PRIORITY_DEFAULT
from penstock.model.staged import StagedRow
from penstock.pipeline.source_options import check_names, required_url

_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_SECONDS: tuple[type[DataType], ...] = (*_WHOLE, FloatType, DoubleType, DecimalType)
_TEXT: tuple[type[DataType], ...] = (StringType,)
#: The columns that make a message, and of which types they may be.
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "queue": _TEXT,
    "topic": _TEXT,
    "tags": (ArrayType, StringType),
    "priority": _WHOLE,
    "headers": (MapType,),
    "delay": _SECONDS,
    "ttl": _SECONDS,
    "key": _TEXT,
    "group": _TEXT,
    "dedup_id": _TEXT,
}
_OF_TEXT: dict[type[DataType], str] = {MapType: "map<string,string>", ArrayType: "array<string>"}
#: Stages are named by it, in the paths of requests.
_QUERY = re.compile(r"[A-Za-z0-9_.-]{1,100}")
#: What may be said for all rows at once.
_FOR_ALL = ("queue", "topic", "tags", "priority", "delay", "ttl")
OPTIONS = ("url", *_FOR_ALL, "query", "batch")


@dataclass(slots=True, frozen=True)
class SinkOptions:
    """Where rows go, and what those of them are like that do not say so themselves."""

    url: str
    query: str | None = None
    batch: int | None = None
    #: By the names of columns.
    for_all: dict[str, Any] = field(default_factory=dict)


def sink_options(options: Mapping[str, str], schema: StructType, *, overwrite: bool, is_stream: bool) -> SinkOptions:
    """Return the options of a write, checked against the columns of what is written."""
    check_names(options, OPTIONS)
    if overwrite and not is_stream:
        raise BadRequest('messages cannot be overwritten; write with mode("append")', key="mode")
    url = required_url(options)
    _check_columns(schema)
    for_all = {name: _value(name, options[name]) for name in _FOR_ALL if options.get(name) is not None}
    if not {"queue", "topic"} & {*schema.names, *for_all}:
        raise BadRequest("where rows go is said by the option or column `queue` or `topic`", key="queue")
    query, batch = options.get("query"), options.get("batch")
    if (query is None) != (batch is None) or (is_stream and query is not None):
        raise BadRequest("the options `query` and `batch` go together, and are for batch writes alone", key="query")
    if query is not None and not _QUERY.fullmatch(query):
        raise BadRequest(f"query is {query!r}; it must be letters, digits, '-', '_' and '.', at most 100", key="query")
    return SinkOptions(url, query, None if batch is None else _whole("batch", batch), for_all)


def _check_columns(schema: StructType) -> None:
    if "body" not in schema.names:
        raise BadRequest("the column `body` is missing; it is the message, as binary or string", key="body")
    for column in schema.fields:
        kinds = _COLUMNS.get(column.name)
        if kinds is None:
            raise BadRequest(
                f"nothing is known of a column {column.name!r}; there are {', '.join(_COLUMNS)}. Leave it out by "
                "`select`, or put it into `headers` or `body`",
                key=column.name,
            )
        if not isinstance(column.dataType, kinds) or not _is_of_text(column.dataType):
            wanted = " or ".join(_OF_TEXT.get(kind, kind.typeName()) for kind in kinds)
            raise BadRequest(
                f"the column {column.name!r} is of type {column.dataType.simpleString()}; it must be {wanted}",
                key=column.name,
            )


def _is_of_text(kind: DataType) -> bool:
    """Tell whether what a type contains, if it does, are texts."""
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return not isinstance(kind, ArrayType) or isinstance(kind.elementType, StringType)


def _value(name: str, text: str) -> Any:
    if name == "priority":
        return _whole(name, text)
    if name in {"delay", "ttl"}:
        try:
            return float(text)
        except ValueError:
            raise BadRequest(f"{name} is {text!r}; it must be seconds", key=name) from None
    return _tags(text) if name == "tags" else text


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise BadRequest(f"{name} is {text!r}; it must be a whole number from 0 on", key=name)
    return int(text)


def _tags(value: Any) -> list[str]:
    """Return tags that are listed, with commas between them or as an array."""
    if isinstance(value, str):
        return [tag for tag in value.split(",") if tag]
    return list(value)


_CHANGES: dict[str, Callable[[Any], Any]] = {"tags": _tags, "headers": dict, "delay": float, "ttl": float}


class RowMaker:
    """Makes rows of Arrow batches. A row that says nothing of something has what is said for all."""

    def __init__(self, options: SinkOptions) -> None:
        self._defaults = {"priority": PRIORITY_DEFAULT, **options.for_all}

    def __call__(self, batch: pa.RecordBatch) -> Iterator[StagedRow]:
        """Yield the rows of a batch."""
        names = [name for name in batch.schema.names if name != "body"]
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        defaults = {name: value for name, value in self._defaults.items() if name not in names}
        if not names:
            for body in bodies:
                yield StagedRow(b"" if body is None else body, **defaults)
            return
        columns = [self._values(name, batch.column(name).to_pylist()) for name in names]
        for body, *values in zip(bodies, *columns, strict=True):
            yield StagedRow(b"" if body is None else body, **defaults, **dict(zip(names, values, strict=True)))

    def _values(self, name: str, values: list[Any]) -> list[Any]:
        default, change = self._defaults.get(name), _CHANGES.get(name)
        if change is None:
            return [default if value is None else value for value in values]
        return [default if value is None else change(value) for value in values]
