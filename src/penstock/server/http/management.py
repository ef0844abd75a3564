"""What an operator asks about queues and topics: `/status/…` and `/api/v1/…`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from penstock.engine.port import queue_status, topic_status
from penstock.model.access import Access, Action
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.runtime.runtime import Runtime
from penstock.server.http.messages import Request, Response, json_response
from penstock.server.http.router import Router

#: Channels looked at before other connections get their turn: a few milliseconds.
LOOKS_PER_TURN = 50

Item = TypeVar("Item")


class Management:
    """Answers with what there is; a user sees the channels that it may administer."""

    def __init__(self, runtime: Runtime, version: str) -> None:
        self._runtime = runtime
        self._version = version
        self._started_at = runtime.now()

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        router.add("GET", "/status/{queue*}", self.status)
        router.add("GET", "/api/v1/overview", self.overview)
        router.add("GET", "/api/v1/queues", self.queues)
        router.add("GET", "/api/v1/topics", self.topics)

    def status(self, request: Request) -> Response:
        """Tell the state of one queue; without `tags` the untagged one is meant."""
        name = checked_name(request.parameters["queue"], "queue")
        tags = request.option("tags")
        key = QueueKey(name, checked_tags(tags.split(",") if tags else ()))
        request.access.check(Action.ADMINISTER, name)
        engine = self._runtime.engine
        queue = engine.channels.queue(key)
        status = queue_status(queue, engine.channels.queues, self._runtime.now(), engine.clients.by_number)
        return json_response(status.as_dict())

    async def overview(self, request: Request) -> Response:
        """Tell how many there are of everything, and what waits in all of them."""
        queues, topics = await self._queues(request.access), await self._topics(request.access)
        content = {
            "version": self._version,
            "uptime_seconds": self._runtime.now() - self._started_at,
            "store": {"durable": self._runtime.store.durable, "failure": _text(self._runtime.failure)},
            "connections": len(self._runtime.engine.clients.by_number),
            "queues": {
                "number": len(queues),
                "names": sorted({queue["queue"] for queue in queues}),
                **{name: sum(queue[name] for queue in queues) for name in ("ready", "assigned", "delayed", "bytes")},
                "totals": _sums([queue["totals"] for queue in queues]),
            },
            "topics": {
                "number": len(topics),
                "names": [topic["topic"] for topic in topics],
                "publishers": sum(topic["publishers"] for topic in topics),
                "subscribers": sum(len(topic["subscribers"]) for topic in topics),
                **{name: sum(topic[name] for topic in topics) for name in ("waiting", "kept", "bytes")},
                "totals": _sums([topic["totals"] for topic in topics]),
            },
        }
        return json_response(content)

    async def queues(self, request: Request) -> Response:
        """Tell the state of every queue."""
        return json_response({"queues": await self._queues(request.access)})

    async def topics(self, request: Request) -> Response:
        """Tell number and names of the topics, and of each its publishers, subscribers, and messages."""
        topics = await self._topics(request.access)
        return json_response({"number": len(topics), "names": [one["topic"] for one in topics], "topics": topics})

    async def _queues(self, access: Access) -> list[dict[str, Any]]:
        engine = self._runtime.engine
        queues, clients = engine.channels.queues, engine.clients.by_number
        return [
            queue_status(queue, queues, self._runtime.now(), clients).as_dict()
            async for key, queue in _in_turns(sorted(queues.items(), key=_order))
            if access.permits(Action.ADMINISTER, key.name)
        ]

    async def _topics(self, access: Access) -> list[dict[str, Any]]:
        engine = self._runtime.engine
        return [
            topic_status(topic, engine.clients.by_number).as_dict()
            async for name, topic in _in_turns(sorted(engine.channels.topics.items()))
            if access.permits(Action.ADMINISTER, name)
        ]


async def _in_turns(items: list[Item]) -> AsyncIterator[Item]:
    """Give all items, with a turn for everybody else after each few of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % LOOKS_PER_TURN == 0:
            await asyncio.sleep(0)


def _order(item: tuple[QueueKey, object]) -> tuple[str, list[str]]:
    return item[0].name, sorted(item[0].tags)


def _sums(totals: list[dict[str, int]]) -> dict[str, int]:
    names = totals[0] if totals else {}
    return {name: sum(one[name] for one in totals) for name in names}


def _text(error: Exception | None) -> str | None:
    return None if error is None else str(error)
