"""The options of the source, checked before Spark starts anything: whatever is wrong is told in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from penstock.model.errors import BadRequest
from penstock.model.names import checked_tags
from penstock.model.records import Kind

#: Of the log, until there is more than one.
SHARD = "0"
OPTIONS = (
    "url", "reader", "channel", "tags", "stages", "startingPosition", "endingPosition", "maxRowsPerBatch",
    "maxBytesPerBatch", "failOnDataLoss", "pushdown",
)  # fmt: skip
#: What Spark says itself among the options.
_OF_SPARK = {"checkpointlocation", "path", "queryname"}
#: The stages of a message as publishers know them, and the records that tell of them.
_STAGES: dict[str, tuple[Kind, ...]] = {
    "ready": (Kind.PUBLISH, Kind.FAST_POP),
    "assign": (Kind.ASSIGN, Kind.POP, Kind.FAST_POP),
    "finish": (Kind.FINISH, Kind.POP, Kind.FAST_POP),
    "retry": (Kind.FAIL,),
    **{kind.name.lower(): (kind,) for kind in Kind if kind not in {Kind.ASSIGN, Kind.FINISH}},
}


@dataclass(slots=True, frozen=True)
class Place:
    """A place in the log as somebody names it: a position, a time, or one of its ends."""

    position: int | None = None
    time: float | None = None
    is_latest: bool = False


EARLIEST = Place()
LATEST = Place(is_latest=True)


@dataclass(slots=True, frozen=True)
class Selection:
    """Which records are wanted."""

    channel: str | None = None
    tags: frozenset[str] | None = None
    kinds: frozenset[int] | None = None

    @property
    def is_of_channels(self) -> bool:
        """Whether the names of channels decide."""
        return self.channel is not None or self.tags is not None


@dataclass(slots=True, frozen=True)
class SourceOptions:
    """What a query asks of the source."""

    url: str
    reader: str | None
    selection: Selection
    starting: Place
    ending: Place
    rows_max: int | None
    bytes_max: int | None
    fails_on_data_loss: bool
    pushes_down: bool


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a query, checked."""
    check_names(options, OPTIONS)
    tags = options.get("tags")
    stages = options.get("stages")
    return SourceOptions(
        url=required_url(options),
        reader=options.get("reader"),
        selection=Selection(
            options.get("channel"),
            None if tags is None else checked_tags(tag for tag in tags.split(",") if tag),
            None if stages is None else _kinds(stages),
        ),
        starting=_place(options.get("startingPosition", "earliest"), "startingPosition"),
        ending=_place(options.get("endingPosition", "latest"), "endingPosition"),
        rows_max=_count(options, "maxRowsPerBatch"),
        bytes_max=_count(options, "maxBytesPerBatch"),
        fails_on_data_loss=_switch(options, "failOnDataLoss", default=True),
        pushes_down=_switch(options, "pushdown", default=False),
    )


def check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse options that nobody knows: a misspelt one would be left out in silence."""
    lower = {*_OF_SPARK, *(name.lower() for name in known)}
    for name in options:
        if name.lower() not in lower:
            raise BadRequest(f"there is no option {name!r}; there are {', '.join(known)}", key=name)


def required_url(options: Mapping[str, str]) -> str:
    """Return where the broker is."""
    url = options.get("url")
    if not url:
        raise BadRequest("the option `url` is missing; it names the broker, as in http://localhost:8080", key="url")
    return url


def _kinds(stages: str) -> frozenset[int]:
    kinds: set[int] = set()
    for stage in stages.split(","):
        found = _STAGES.get(stage.strip())
        if found is None:
            raise BadRequest(f"there is no stage {stage.strip()!r}; there are {', '.join(_STAGES)}", key="stages")
        kinds.update(int(kind) for kind in found)
    return frozenset(kinds)


def _place(text: str, key: str) -> Place:
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    try:
        position = msgspec.json.decode(text.encode(), type=int | dict[str, int])
    except msgspec.DecodeError:
        return Place(time=_time(text, key))
    if isinstance(position, dict):
        if position.keys() != {SHARD}:
            raise BadRequest(f'{key} names shards that there are not; write {{"{SHARD}": POSITION}}', key=key)
        position = position[SHARD]
    return Place(position=position)


def _time(text: str, key: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f'{key} is {text!r}; it must be earliest, latest, a time such as 2026-01-31T12:00:00Z, or {{"{SHARD}": '
            "POSITION}",
            key=key,
        ) from None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**63:
        raise BadRequest(f"{name} is {text!r}; it must be a whole number above 0", key=name)
    return int(text)


def _switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadRequest(f"{name} is {text!r}; it must be true or false", key=name)
    return text == "true"
