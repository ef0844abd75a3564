"""What a user may do, by patterns of channel names."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from penstock.model.errors import PermissionDenied

#: Matches no name.
_NOTHING = "(?!)"


class Action(StrEnum):
    """What can be permitted on a channel."""

    PUBLISH = "publish"
    CONSUME = "consume"
    #: Create, alter, purge and delete it, and look at it.
    ADMINISTER = "administer"


class Access:
    """A user who has logged in, and the channels that each action is permitted on.

    A pattern is the name of a queue or topic, in which `*` stands for any characters, dots included. Whoever consumes
    from a pattern of topics needs a permission whose pattern covers the text of that pattern.
    """

    __slots__ = ("_tests", "user")

    def __init__(self, user: str, patterns: Mapping[Action, Iterable[str]]) -> None:
        self.user = user
        self._tests = {action: _test_of(patterns.get(action, ())) for action in Action}

    @classmethod
    def to_all(cls, user: str) -> "Access":
        """Return the access of somebody who may do everything."""
        return cls(user, dict.fromkeys(Action, ("*",)))

    def permits(self, action: Action, channel: str) -> bool:
        """Tell whether the user may do this to a queue or topic of this name."""
        return self._tests[action].fullmatch(channel) is not None

    def check(self, action: Action, channel: str) -> None:
        """Raise if the user may not do this to a queue or topic of this name."""
        if not self.permits(action, channel):
            raise PermissionDenied(
                f"the user {self.user!r} may not {action.value} on {channel!r}", key="channel", channel=channel
            )

    def check_somewhere(self, action: Action) -> None:
        """Raise if there is no queue or topic to which the user may do this."""
        if self._tests[action].pattern == _NOTHING:
            raise PermissionDenied(f"the user {self.user!r} may not {action.value} on anything", key="channel")


def _test_of(patterns: Iterable[str]) -> re.Pattern[str]:
    parts = [".*".join(re.escape(part) for part in pattern.split("*")) for pattern in patterns]
    return re.compile("|".join(parts) if parts else _NOTHING, re.DOTALL)
