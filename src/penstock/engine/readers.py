"""Readers of the change log, pins of batch reads, and how much of the log is kept for them."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.engine.effects import Effects
from penstock.model.errors import NoObject, NotAssigned, TooLarge
from penstock.model.limits import Limits
from penstock.model.records import Attribute, Kind

PIN_SECONDS = 600.0


@dataclass(slots=True)
class Reader:
    """A named place in the change log."""

    name: str
    position: int  # of the next record that it wants
    moved_at: float


@dataclass(slots=True, frozen=True)
class Retention:
    """How much settled history is kept, and how much more at most for readers that are behind."""

    age: float = 86400.0
    bytes: int = 2**30
    reader_hold: int = 10 * 2**30


@dataclass(slots=True, frozen=True)
class LogStretch:
    """What the floor is computed from: a run of the log that is kept or dropped as one."""

    first: int
    last: int
    bytes: int
    newest: float


class Readers:
    """See the module."""

    __slots__ = ("_effects", "_limits", "_next_pin", "_owners", "_pins", "_quiet_end", "_quiet_from", "by_name")

    def __init__(self, effects: Effects, limits: Limits) -> None:
        self._effects = effects
        self._limits = limits
        self.by_name: dict[str, Reader] = {}
        #: Who reads by each now; after a restart of the broker whoever asks first.
        self._owners: dict[str, str] = {}
        #: Position and end of each pin; they do not survive a restart, and neither does the read that has one.
        self._pins: dict[int, tuple[int, float]] = {}
        self._next_pin = 1
        #: The positions from which to which, exclusive, the log tells of nothing but readers.
        self._quiet_from = self._quiet_end = 0

    def take(self, name: str, owner: str, position: int, now: float) -> Reader:
        """Read by a reader from now on, made at `position` if need be; whoever read by it before is told at its next move."""
        reader = self.by_name.get(name) or self.move(name, position, now)
        self._owners[name] = owner
        return reader

    def move_own(self, name: str, owner: str, position: int, now: float) -> Reader:
        """Move a reader that this owner has taken."""
        if name not in self.by_name:
            raise NoObject(f"there is no reader {name!r}", key="reader", reader=name)
        if self._owners.setdefault(name, owner) != owner:
            raise NotAssigned(f"another query has begun to read by the reader {name!r}", key="reader", reader=name)
        return self.move(name, position, now)

    def move(self, name: str, position: int, now: float) -> Reader:
        """Move a reader, made if need be.

        What it read of records of readers alone is not recorded: each such record would be another to read.
        """
        reader = self.by_name.get(name)
        if reader is None and len(self.by_name) >= self._limits.readers_max:
            raise TooLarge(
                f"there are {len(self.by_name)} readers already; at most {self._limits.readers_max} are allowed "
                "(readers_max)",
                key="reader",
                size=len(self.by_name) + 1,
                limit=self._limits.readers_max,
            )
        if reader is None or not self._quiet_from <= reader.position <= position <= self._quiet_end:
            self._note(name, position, now)
        return self.restore(name, position, now)

    def _note(self, name: str, position: int, now: float) -> None:
        at = self._effects.position
        if at != self._quiet_end:
            self._quiet_from = at
        self._quiet_end = at + 1
        self._effects.note(Kind.READER, now, subject=position, attributes={int(Attribute.NAME): name})

    def remove(self, name: str, now: float) -> None:
        """Forget a reader, and hold nothing for it any more."""
        if self.by_name.pop(name, None) is None:
            raise NoObject(f"there is no reader {name!r}", key="reader", reader=name)
        self._owners.pop(name, None)
        self._effects.note(Kind.READER_GONE, now, attributes={int(Attribute.NAME): name})

    def restore(self, name: str, position: int, now: float) -> Reader:
        """Know a reader's place again."""
        reader = self.by_name[name] = Reader(name, position, now)
        return reader

    def pin(self, position: int, now: float, seconds: float = PIN_SECONDS) -> int:
        """Hold the log from a position on for some time; returns what to unpin it by."""
        number = self._next_pin
        self._next_pin += 1
        self._pins[number] = (position, now + seconds)
        return number

    def is_pinned(self, number: int) -> bool:
        """Tell whether a pin still holds."""
        return number in self._pins

    def unpin(self, number: int) -> None:
        """Hold no longer."""
        self._pins.pop(number, None)

    def held_from(self, now: float) -> int | None:
        """Return the lowest position that a reader or a pin wants kept."""
        for number, (_, end) in list(self._pins.items()):
            if end <= now:
                del self._pins[number]
        positions = [reader.position for reader in self.by_name.values()]
        positions += [position for position, _ in self._pins.values()]
        return min(positions, default=None)

    def floor(self, stretches: Iterable[LogStretch], position: int, now: float, retention: Retention) -> int:
        """Return the position before which the log need not be kept as it was written; `position` is its end."""
        held_from = self.held_from(now)
        floor, kept = position, 0
        for stretch in sorted(stretches, key=lambda one: one.first, reverse=True):
            kept += stretch.bytes
            young = stretch.newest + retention.age > now and kept <= retention.bytes
            wanted = held_from is not None and stretch.last >= held_from and kept <= retention.reader_hold
            if not (young or wanted):
                break
            floor = stretch.first
        return floor
