"""Login: who a peer is and what it may do, found out in a thread, since looking at a secret is meant to be slow."""

import hashlib
import logging
import secrets
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from penstock.model.access import Access
from penstock.model.errors import BadRequest, PenstockError, PermissionDenied, Unavailable
from penstock.server.limits import ServerLimits
from penstock.server.users import User, UserFile, is_right

LOG = logging.getLogger("penstock.login")
#: Who may do everything where nobody has to log in.
DEFAULT_USER = "guest"
_KEPT_MAX = 10_000

Answer: TypeAlias = Callable[[Access | PenstockError], None]


class Logins:
    """See the module. Without a file of users the default user may do everything, and there is no other."""

    def __init__(self, file: UserFile | None, limits: ServerLimits, loop: AbstractEventLoop) -> None:
        self._file = file
        self._limits = limits
        self._loop = loop
        self._users: dict[str, User] = {} if file is None else file.users()
        self._threads = ThreadPoolExecutor(limits.logins_at_once_max, thread_name_prefix="login")
        self._waiting = 0
        #: Logins that were right: by a keyed digest of them, the hash that they fitted, and until when that counts.
        self._kept: dict[bytes, tuple[str, float]] = {}
        self._key = secrets.token_bytes(32)

    @property
    def is_needed(self) -> bool:
        """Whether there are users, so that strangers may do nothing."""
        return self._file is not None

    def check(self, user: str | None, secret: str | None, then: Answer) -> None:
        """Look who somebody is; `then` is called at once or in a later wake-up."""
        name = user or ""
        if self._file is None:
            denied = PermissionDenied(f"there is no user {name!r}; without users there is {DEFAULT_USER}", key="login")
            then(Access.to_all(name) if name in {"", DEFAULT_USER} else denied)
            return
        if not name:
            then(PermissionDenied("a login is needed here: give a user and a secret", key="login"))
            return
        found = self._known().get(name)
        digest = self._digest(name, secret or "")
        kept = self._kept.get(digest)
        if found is not None and kept is not None and kept[0] == found.secret_hash and kept[1] > self._loop.time():
            then(found.access)
        elif self._waiting >= self._limits.logins_waiting_max:
            then(Unavailable(f"{self._waiting} logins are waiting already (logins_waiting_max)", key="login"))
        else:
            self._waiting += 1
            looking = self._loop.run_in_executor(self._threads, is_right, found, secret or "")
            looking.add_done_callback(partial(self._answer, name, found, digest, then))

    def close(self) -> None:
        """Look at nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, name: str, user: User | None, digest: bytes, then: Answer, looked: "Future[bool]") -> None:
        self._waiting -= 1
        if looked.cancelled() or looked.exception() is not None:
            then(Unavailable("the login could not be looked at; try again", key="login"))
        elif user is not None and looked.result():
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[digest] = (user.secret_hash, self._loop.time() + self._limits.login_kept_seconds)
            then(user.access)
        else:
            LOG.warning("a login as %r was refused", name[:100])
            then(PermissionDenied("there is no such user, or the secret is wrong", key="login"))

    def _known(self) -> dict[str, User]:
        """Return the users, as the file has them now; a file that has become wrong changes nothing."""
        if self._file is not None:
            try:
                self._users = self._file.users()
            except BadRequest as error:
                LOG.warning("the users stay as they were: %s", error)
        return self._users

    def _digest(self, name: str, secret: str) -> bytes:
        return hashlib.blake2b(f"{len(name)} {name}{secret}".encode(errors="replace"), key=self._key).digest()
