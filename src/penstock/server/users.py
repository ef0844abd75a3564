"""The file of users: who there is, the hashes of their secrets, and what each may do.

    [users.mill]
    secret = "$argon2id$v=19$m=19456,t=2,p=1$…"
    publish = ["orders", "news.*"]
    consume = ["orders"]
    administer = []

A pattern is the name of a queue or topic, in which `*` stands for any characters, dots included.
"""

import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists
from penstock.model.names import checked_name

#: 19 MiB and two rounds: what OWASP recommends at least, so that a thousand clients that come back at once can log in.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 2**10, parallelism=1)
#: What is looked at for users who do not exist, so that the time tells nobody who does.
_NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$5dqgx9SC+w2kV2Lm6FQ5Dg$R/Hk+VFl38Gs1Etli4G1LpBp9kJ8/5vTXhvE7ckTvu8"
_FIELDS = frozenset({"secret", *Action})
_HEADING = "# The users of Penstock. `penstock user` writes this file, and keeps no comments in it.\n"


@dataclass(slots=True)
class User:
    """Somebody who may log in."""

    name: str
    secret_hash: str
    patterns: dict[Action, list[str]] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """What it may do."""
        return Access(self.name, self.patterns)


def hashed(secret: str) -> str:
    """Return the hash of a secret."""
    return _HASHER.hash(secret)


def is_right(user: User | None, secret: str) -> bool:
    """Tell whether this is the secret of a user, in the same time for somebody who does not exist."""
    try:
        _HASHER.verify(user.secret_hash if user is not None else _NOBODY, secret)
    except VerifyMismatchError:
        return False
    return user is not None


class UserFile:
    """The users in a file, in memory until it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}

    def users(self) -> dict[str, User]:
        """Return all users by name, read anew if the file has changed."""
        try:
            found = self.path.stat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._stamp = stamp  # what is wrong with the file is told once
                self._users = parsed(self.path.read_text(encoding="utf-8"), str(self.path))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
            raise BadRequest(f"the file of users {self.path} cannot be read: {reason}", key="users") from None
        return self._users

    def add(self, user: User) -> None:
        """Write one more user."""
        users = self.users() if self.path.exists() else {}
        if user.name in users:
            raise ObjectAlreadyExists(f"there is a user {user.name!r} already in {self.path}", key="user")
        self.write({**users, user.name: user})

    def find(self, name: str) -> User:
        """Return a user."""
        user = self.users().get(name)
        if user is None:
            raise NoObject(f"there is no user {name!r} in {self.path}", key="user")
        return user

    def remove(self, name: str) -> None:
        """Write all users but one."""
        self.find(name)
        self.write({user.name: user for user in self.users().values() if user.name != name})

    def write(self, users: Mapping[str, User]) -> None:
        """Put these users into the file, all or none, readable for its owner alone."""
        text = _HEADING + "".join(map(_section, users.values()))
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:  # mode 0600 from the start
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self.path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise BadRequest(
                f"the file of users {self.path} cannot be written: {error.strerror}", key="users"
            ) from None


def parsed(text: str, place: str) -> dict[str, User]:
    """Return the users of a file's text, or say everything that is wrong with it."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"the file of users {place} is not TOML: {error}", key="users") from None
    faults = [f"there is {name!r} beside [users]" for name in whole if name != "users"]
    tables = whole.get("users", {})
    users: dict[str, User] = {}
    if isinstance(tables, dict):
        for name, table in tables.items():
            faults += [f"[users.{name}] {fault}" for fault in _faults(name, table)]
            if not faults:
                patterns = {action: list(table.get(action.value, [])) for action in Action}
                users[name] = User(name, table["secret"], patterns)
    else:
        faults.append("users is not a table")
    if faults:
        raise BadRequest(f"the file of users {place}: {'; '.join(faults)}", key="users")
    return users


def checked_user(name: str) -> str:
    """Return the name of a user if it is well formed."""
    checked_name(name, "user")
    if ":" in name:
        raise BadRequest(f"the user {name!r} has a colon, which ends a name where HTTP logs in", key="user")
    return name


def checked_patterns(patterns: list[str], action: Action) -> list[str]:
    """Return patterns that are well formed."""
    for pattern in patterns:
        checked_name(pattern, action.value)
    return patterns


def _faults(name: str, table: Any) -> list[str]:
    """Return what is wrong with a user's table."""
    if not isinstance(table, dict):
        return ["is not a table"]
    faults = [f"has a field {key!r}; there are {', '.join(sorted(_FIELDS))}" for key in table if key not in _FIELDS]
    try:
        checked_user(name)
        _HASHER.check_needs_rehash(table.get("secret", ""))
    except BadRequest as error:
        faults.append(error.message)
    except (InvalidHashError, AttributeError):
        faults.append("has no secret hashed by argon2; `penstock user passwd` makes one")
    for action in Action:
        patterns = table.get(action.value, [])
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            faults.append(f"{action.value} is not a list of patterns")
            continue
        try:
            checked_patterns(patterns, action)
        except BadRequest as error:
            faults.append(error.message)
    return faults


def _section(user: User) -> str:
    lines = [f"\n[users.{_quoted(user.name)}]", f"secret = {_quoted(user.secret_hash)}"]
    for action in Action:
        patterns = ", ".join(map(_quoted, user.patterns.get(action, [])))
        lines.append(f"{action.value} = [{patterns}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as TOML has it, which for all that names may have is as JSON has it."""
    return json.dumps(text, ensure_ascii=False)
