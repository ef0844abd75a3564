"""Filters that Spark hands to the source, for those who have configured it to: kinds, channels and positions."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.model.records import Kind
from penstock.pipeline.source_options import Selection

_KINDS = {kind.name.lower(): int(kind) for kind in Kind}


@dataclass(slots=True)
class Narrowed:
    """What is left of the log: the positions from `first` to `end`, exclusive, and a selection of their records."""

    selection: Selection
    first: int = 0
    end: int = 2**63 - 1

    def take(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        """Apply the filters that can be applied while reading; yields the others, which are left to Spark."""
        for one in filters:
            if not (self._takes_position(one) or self._takes_kind(one) or self._takes_channel(one)):
                yield one

    def _takes_position(self, one: Filter) -> bool:
        match one:
            case EqualTo(("position",), int(value)):
                self._narrow(value, value + 1)
            case GreaterThan(("position",), int(value)):
                self._narrow(value + 1, self.end)
            case GreaterThanOrEqual(("position",), int(value)):
                self._narrow(value, self.end)
            case LessThan(("position",), int(value)):
                self._narrow(self.first, value)
            case LessThanOrEqual(("position",), int(value)):
                self._narrow(self.first, value + 1)
            case _:
                return False
        return True

    def _narrow(self, first: int, end: int) -> None:
        self.first, self.end = max(self.first, first), min(self.end, end)

    def _takes_kind(self, one: Filter) -> bool:
        match one:
            case EqualTo(("kind",), value):
                wanted: tuple[object, ...] = (value,)
            case In(("kind",), tuple(values)):
                wanted = values
            case _:
                return False
        kinds = frozenset(_KINDS[name] for name in wanted if name in _KINDS)
        known = self.selection.kinds
        self.selection = replace(self.selection, kinds=kinds if known is None else known & kinds)
        return True

    def _takes_channel(self, one: Filter) -> bool:
        match one:
            case EqualTo(("channel",), str(value)) if self.selection.channel is None:
                self.selection = replace(self.selection, channel=value)
                return True
        return False
