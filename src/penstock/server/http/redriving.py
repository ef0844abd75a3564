"""Dead letters that somebody wants back: `POST /api/v1/redrives`."""

from typing import Annotated

import msgspec

from penstock.engine.port import Letter
from penstock.model.access import Action
from penstock.model.errors import BadRequest, TooLarge
from penstock.model.names import QueueKey, checked_name, checked_tags
from penstock.model.stages import Level
from penstock.runtime.runtime import Runtime
from penstock.server.http.messages import Request, Response, json_response
from penstock.server.http.router import Router

#: Letters of one request: some milliseconds in which nobody else is served.
LETTERS_MAX = 500


class Wanted(msgspec.Struct):
    """A dead letter, by its sequence, and the key and group that it had in life."""

    sequence: Annotated[int, msgspec.Meta(ge=0)]
    key: str | None = None
    group: str | None = None


class Redrive(msgspec.Struct):
    """Which letters of a dead letter queue are wanted back, and where."""

    queue: str
    target: str
    letters: list[Wanted]
    tags: list[str] = []
    target_tags: list[str] = []


class Redriving:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        router.add("POST", "/api/v1/redrives", self.redrive)

    async def redrive(self, request: Request) -> Response:
        """Publish dead letters again and take them out of their queue; answers once that is on disk."""
        wanted = _wanted(request.body)
        queue = QueueKey(checked_name(wanted.queue, "queue"), checked_tags(wanted.tags))
        target = QueueKey(checked_name(wanted.target, "target"), checked_tags(wanted.target_tags))
        request.access.check(Action.ADMINISTER, queue.name)
        request.access.check(Action.PUBLISH, target.name)
        runtime = self._runtime
        runtime.check_room()
        engine, now = runtime.engine, runtime.now()
        letters = [_letter(one) for one in wanted.letters]
        done = engine.dead_letters.redrive_these(engine.channels.queue(queue), letters, target, now)
        runtime.touch()
        await runtime.confirm(Level.SYNC)
        return json_response(done._asdict())


def _wanted(body: bytes) -> Redrive:
    try:
        wanted = msgspec.json.decode(body, type=Redrive)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body cannot be read: {error}", key="body") from None
    if len(wanted.letters) > LETTERS_MAX:
        raise TooLarge(
            f"{len(wanted.letters)} letters are too many; at most {LETTERS_MAX} can be redriven at once",
            key="letters",
            size=len(wanted.letters),
            limit=LETTERS_MAX,
        )
    return wanted


def _letter(wanted: Wanted) -> Letter:
    key = None if wanted.key is None else checked_name(wanted.key, "key")
    group = None if wanted.group is None else checked_name(wanted.group, "group")
    return Letter(wanted.sequence, key, group)
