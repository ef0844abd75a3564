"""Choosing channels: queues by name and tags, topics by patterns."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from penstock.model.errors import BadRequest
from penstock.model.names import checked_name, checked_tags


class Match(StrEnum):
    """How the tags of a request choose among the queues of its name."""

    EXACT = "exact"
    STRICT = "strict"
    COMBINED = "combined"
    ANY = "any"


@dataclass(slots=True, frozen=True)
class Selection:
    """A name with tags: which queues are meant, now and when new ones come."""

    name: str
    #: None: whatever tags a queue has.
    tags: frozenset[str] | None = None
    match: Match = Match.EXACT

    @classmethod
    def checked(cls, name: object, tags: object, match: object) -> "Selection":
        """Return the selection that a request names."""
        try:
            how = Match(match)  # type: ignore[arg-type]  # any object may be asked for, and is refused below
        except ValueError:
            raise BadRequest(f"match must be exact, strict, combined or any, not {match!r}", key="match") from None
        chosen = None if tags is None else checked_tags(tags)
        return cls(checked_name(name, "queue"), chosen, how)

    @property
    def takes_turns(self) -> bool:
        """Whether its queues take turns, rather than being served as one."""
        return self.match is Match.ANY and bool(self.tags)

    def fits(self, tags: frozenset[str]) -> bool:
        """Tell whether a queue of this name with these tags is meant."""
        wanted = self.tags
        if wanted is None:
            return True
        if not wanted or self.match is Match.EXACT:
            return tags == wanted
        if self.match is Match.STRICT:
            return tags >= wanted
        return not tags.isdisjoint(wanted)


def is_pattern(name: str) -> bool:
    """Tell whether a topic's name has wildcards."""
    return any(word in ("*", "#", ">") for word in name.split("."))


def compiled_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a test for topics: `*` is one dot-separated word, `#` or `>` at the end is the rest."""
    words = pattern.split(".")
    for word in words[:-1]:
        if word in ("#", ">"):
            raise BadRequest(f"the topic pattern {pattern!r} has {word!r} before its end", key="topic")
    open_end = words[-1] in ("#", ">")
    if open_end:
        words.pop()

    def fits(topic: str) -> bool:
        parts = topic.split(".")
        if len(parts) < len(words) or (len(parts) > len(words) and not open_end):
            return False
        return all(word in ("*", part) for word, part in zip(words, parts, strict=False))

    return fits
