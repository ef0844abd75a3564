"""What Spark writes: tasks put their rows into `/api/v1/stages`, and their driver has them published by `/api/v1/writes`."""

from typing import Annotated, TypeAlias

import msgspec

from penstock.engine.port import Write
from penstock.model.access import Action
from penstock.model.errors import BadRequest
from penstock.model.names import checked_name
from penstock.runtime.runtime import Runtime
from penstock.server.http.messages import Request, Response, json_response
from penstock.server.http.router import Router

#: Tasks of one batch; Spark has one for each partition of what is written.
STAGES_MAX = 100_000


#: What a record of the log can hold.
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Decision(msgspec.Struct):
    """The stages of the tasks that won, with the rows of all of them together."""

    query: str
    batch: Number
    stages: Annotated[list[str], msgspec.Meta(max_length=STAGES_MAX)]
    rows: Number
    is_stream: bool = True


class Stages:
    """See the module. Whoever may publish to all channels that the rows name may write them; to stage them, to any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._writing = runtime.writing

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        router.add("POST", "/api/v1/stages/{stage}", self.append)
        router.add("POST", "/api/v1/stages/{stage}/check", self.check)
        router.add("DELETE", "/api/v1/stages/{stage}", self.drop)
        router.add("POST", "/api/v1/writes", self.commit)

    async def append(self, request: Request) -> Response:
        """Add bytes to a stage, which is made by the first."""
        request.access.check_somewhere(Action.PUBLISH)
        self._runtime.check_room()
        await self._writing.append(request.parameters["stage"], request.body)
        return json_response({})

    async def check(self, request: Request) -> Response:
        """Tell how many rows a stage holds, if none would be refused."""
        return json_response({"rows": await self._writing.check(request.parameters["stage"], request.access)})

    async def drop(self, request: Request) -> Response:
        """Throw a stage away that nobody has named to be published."""
        request.access.check_somewhere(Action.PUBLISH)
        await self._writing.give_up(request.parameters["stage"])
        return json_response({})

    async def commit(self, request: Request) -> Response:
        """Publish the rows of a batch, all or none; answers once they are on disk. A second time changes nothing."""
        try:
            wanted = msgspec.json.decode(request.body, type=Decision)
        except msgspec.DecodeError as error:
            raise BadRequest(f"the body cannot be read: {error}", key="body") from None
        request.access.check_somewhere(Action.PUBLISH)
        self._runtime.check()
        write = Write(checked_name(wanted.query, "query"), wanted.batch, wanted.stages, wanted.rows, wanted.is_stream)
        written = await self._writing.commit(write, request.access)
        return json_response({"rows": written.rows, "batch": written.batch, "was_known": written is not write})
