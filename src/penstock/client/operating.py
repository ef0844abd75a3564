"""What an operator does through a client: queues and topics, and looking at them."""

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.client.address import Target
from penstock.client.errors import not_open
from penstock.client.management import got
from penstock.client.requests import checked, texts_of
from penstock.client.session import Session
from penstock.protocols.native.bincode import written
from penstock.protocols.native.messages import (
    Alter,
    Answer,
    AskStatus,
    Create,
    Delete,
    Keepalive,
    Ok,
    Purge,
    Status,
    Unsubscribe,
)


class State(dict[str, Any]):
    """The state of a queue or topic at one moment; its fields are items and attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Operating:
    """See the module; `Client` adds the rest."""

    _session: Session
    _target: Target

    async def create_queue(
        self, queue: str, *, tags: Iterable[str] = (), exclusive: bool = False, **settings: Any
    ) -> None:
        """Make a queue; one that exists is left as it is, unless it is to be made exclusively."""
        await self._ask(Create(queue=queue, tags=texts_of(tags, "tags"), exclusive=exclusive, settings=settings))

    async def alter_queue(self, queue: str, *, tags: Iterable[str] = (), **settings: Any) -> None:
        """Change settings of a queue."""
        await self._ask(Alter(queue=queue, tags=texts_of(tags, "tags"), settings=settings))

    async def pause_queue(self, queue: str, *, tags: Iterable[str] = ()) -> None:
        """Hand nothing out, also after a restart."""
        await self.alter_queue(queue, tags=tags, paused=True)

    async def resume_queue(self, queue: str, *, tags: Iterable[str] = ()) -> None:
        """Hand messages out again."""
        await self.alter_queue(queue, tags=tags, paused=False)

    async def delete_queue(self, queue: str, *, tags: Iterable[str] = ()) -> int:
        """Delete a queue with all that is in it; returns how many messages that were."""
        return _count(await self._ask(Delete(queue=queue, tags=texts_of(tags, "tags"))))

    async def purge_queue(self, queue: str, *, tags: Iterable[str] = ()) -> int:
        """Drop all that waits in a queue; returns how many messages that were."""
        return _count(await self._ask(Purge(queue=queue, tags=texts_of(tags, "tags"))))

    async def create_topic(self, topic: str, *, exclusive: bool = False, **settings: Any) -> None:
        """Make a topic; one that exists is left as it is, unless it is to be made exclusively."""
        await self._ask(Create(topic=topic, exclusive=exclusive, settings=settings))

    async def alter_topic(self, topic: str, **settings: Any) -> None:
        """Change settings of a topic."""
        await self._ask(Alter(topic=topic, settings=settings))

    async def delete_topic(self, topic: str) -> int:
        """Delete a topic with its subscribers; returns how many messages it kept."""
        return _count(await self._ask(Delete(topic=topic)))

    async def status(self, queue: str, *, tags: Iterable[str] = ()) -> State:
        """Return the state of a queue."""
        return _state(await self._ask(AskStatus(queue=queue, tags=texts_of(tags, "tags"))))

    async def topic_status(self, topic: str) -> State:
        """Return the state of a topic."""
        return _state(await self._ask(AskStatus(topic=topic)))

    async def queues(self) -> list[State]:
        """Return the state of every queue."""
        return [State(one) for one in (await self._got("/api/v1/queues"))["queues"]]

    async def topics(self) -> list[State]:
        """Return the state of every topic."""
        return [State(one) for one in (await self._got("/api/v1/topics"))["topics"]]

    async def keep_alive(self, message: Any = None) -> None:
        """Start the lease of a message anew, or of all that are held."""
        await self._ask(Keepalive() if message is None else Keepalive(sequence=message.sequence, shard=message.shard))

    # Inside.

    async def _ask(self, request: Create | Alter | Delete | Purge | AskStatus | Keepalive | Unsubscribe) -> Answer:
        checked(request)
        request.label = self._session.next_label()
        return await self._session.ask(request.label, written(request))

    async def _got(self, path: str) -> dict[str, Any]:
        """Return what the broker answers over HTTP."""
        if not self._session.is_open:
            raise not_open()
        return await asyncio.to_thread(got, self._target, path)


def _count(answer: Answer) -> int:
    return (answer.count or 0) if isinstance(answer, Ok) else 0


def _state(answer: Answer) -> State:
    return State(answer.status) if isinstance(answer, Status) else State()
