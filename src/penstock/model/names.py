"""Names and tags of channels: what is allowed, and how a queue is told from another."""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from penstock.model.errors import BadRequest

NAME_BYTES_MAX = 255
TAGS_MAX = 64  # enough for any use seen; a queue's tags are compared whole

DEAD_LETTER_PREFIX = "DLQ."
TOPIC_DEAD_LETTER_PREFIX = "DLQ.topic."

NO_TAGS: frozenset[str] = frozenset()

_TEMPORARY = re.compile(r"temp\.[0-9a-f]{32}\..+", re.DOTALL)


class QueueKey(NamedTuple):
    """What identifies a queue: its name and its set of tags."""

    name: str
    tags: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}{{{','.join(sorted(self.tags))}}}" if self.tags else self.name


def checked_name(name: object, key: str) -> str:
    """Return the name if it may name a channel, a subscriber or a reader; `key` is the field it came in."""
    if not isinstance(name, str):
        raise BadRequest(f"{key} must be a text, not {type(name).__name__}", key=key)
    _check_text(name, key)
    return plain_text(name)


def plain_text(text: str) -> str:
    """Return the text as exactly a `str`: stores take nothing else, and a member of an enumeration is one, too."""
    return str.__str__(text)


def checked_tags(tags: object) -> frozenset[str]:
    """Return the set of tags if each may be one."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise BadRequest(f"tags must be a list of texts, not {type(tags).__name__}", key="tags")
    found: set[str] = set()
    for tag in tags:
        if not isinstance(tag, str):
            raise BadRequest(f"a tag must be a text, not {type(tag).__name__}", key="tags")
        if tag not in found:
            _check_text(tag, "tags")
            if "," in tag:
                raise BadRequest(f"the tag {tag!r} has a comma; tags are listed with commas between them", key="tags")
            found.add(plain_text(tag))
            if len(found) > TAGS_MAX:
                raise BadRequest(f"there are more tags than {TAGS_MAX}, which are the most", key="tags")
    return frozenset(found)


def dead_letter_name(name: str, prefix: str = DEAD_LETTER_PREFIX) -> str:
    """Return the name of the dead letter queue of a channel; that of a very long name is cut, so that it is one."""
    return (prefix + name).encode()[:NAME_BYTES_MAX].decode(errors="ignore")


def is_dead_letter_name(name: str) -> bool:
    """Tell whether a queue of this name holds dead letters, and so never gives up on them."""
    return name.startswith(DEAD_LETTER_PREFIX)


def is_temporary(name: str) -> bool:
    """Tell whether a queue of this name belongs to one connection, and goes with it."""
    return _TEMPORARY.fullmatch(name) is not None


def _check_text(text: str, key: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"{key} {text!r} is not valid UTF-8", key=key) from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise BadRequest(f"{key} has {size} bytes; 1 to {NAME_BYTES_MAX} are allowed", key=key)
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise BadRequest(f"{key} {text!r} has a control character", key=key)
