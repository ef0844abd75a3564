"""Temporary queues: private to a connection, gone with it, and known to others by the `reply-to` of a message.

A peer calls one `/temp-queue/NAME`; its queue is `temp.<id of the client>.NAME`, which nobody can guess.
"""

from penstock.engine.port import Client, Engine, Publish, Settle
from penstock.model.errors import BadRequest, NoObject, TooLarge
from penstock.model.names import NO_TAGS, QueueKey, checked_name, is_temporary

PREFIX = "/temp-queue/"
#: Of one connection: each request may name another one in its `reply-to`, and they go with the connection only.
TEMPORARY_QUEUES_MAX = 1000
#: Nobody would look for dead letters of a queue that is gone.
_SETTINGS = {"dead_letter": None, "retry_limit": None}


def is_lost_answer(operation: Publish | Settle, engine: Engine) -> bool:
    """Tell whether this is an answer to somebody who has gone since."""
    if isinstance(operation, Settle) or isinstance(operation.channel, str):
        return False
    return is_temporary(operation.channel.name) and operation.channel not in engine.channels.queues


def remove_leftovers(engine: Engine, now: float) -> int:
    """Delete the temporary queues of connections that ended with the last life of the broker; returns how many."""
    leftovers = [key for key in engine.channels.queues if is_temporary(key.name)]
    for key in leftovers:
        engine.delete(key, now)
    return len(leftovers)


class TemporaryQueues:
    """Those of one connection."""

    __slots__ = ("_client", "_engine", "_keys")

    def __init__(self, engine: Engine, client: Client) -> None:
        self._engine = engine
        self._client = client
        self._keys: dict[str, QueueKey] = {}

    def made(self, name: str, now: float) -> QueueKey:
        """Return the queue that the peer calls so, made if need be."""
        known = self._keys.get(name)
        if known is not None and known in self._engine.channels.queues:
            return known
        if len(self._keys) >= TEMPORARY_QUEUES_MAX:
            raise TooLarge(
                f"{TEMPORARY_QUEUES_MAX} temporary queues are the most a connection can have", key="reply-to"
            )
        key = QueueKey(checked_name(f"temp.{self._client.id.hex()}.{name}", "the temporary queue"), NO_TAGS)
        self._engine.channels.create_queue(key, now, _SETTINGS, exclusive=False)
        self._keys[name] = key
        return key

    def known(self, name: str) -> QueueKey:
        """Return the queue that the peer calls so, which must be there."""
        key = self._keys.get(name)
        if key is None:
            raise NoObject(
                f"there is no temporary queue {name!r} of this connection; subscribe to it, or name it in a reply-to",
                key="destination",
            )
        return key

    def has(self, name: str) -> bool:
        """Tell whether there is one that the peer calls so."""
        return name in self._keys

    def check_own(self, queue: str) -> None:
        """Raise if a queue is the temporary queue of somebody else."""
        if is_temporary(queue) and queue not in {key.name for key in self._keys.values()}:
            raise BadRequest("this temporary queue belongs to another connection", key="destination")

    def remove(self, now: float) -> None:
        """Delete all of them."""
        for key in self._keys.values():
            if key in self._engine.channels.queues:
                self._engine.delete(key, now)
        self._keys.clear()


def name_in(reply_to: str | None) -> str | None:
    """Return the name of the temporary queue that a `reply-to` means, None if it means something else."""
    if reply_to is None or not reply_to.startswith(PREFIX) or len(reply_to) == len(PREFIX):
        return None
    return reply_to[len(PREFIX) :]
