"""The service: looks who makes a call before anything of it is read, and tells what went wrong."""

import asyncio
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn, TypeAlias

import grpc
from grpc import aio

from penstock.model.access import Access
from penstock.model.errors import BadRequest, PenstockError, PermissionDenied
from penstock.model.stages import Level
from penstock.protocols.door import Door
from penstock.protocols.grpc.callers import Caller, Callers
from penstock.protocols.grpc.errors import closing, metadata_of, status_of
from penstock.protocols.grpc.streams import Batches
from penstock.protocols.grpc.subscribing import Subscriber
from penstock.runtime.runtime import Runtime
from penstock.server.grpc.calls import READY, SYNCED, Calls
from penstock.server.grpc.conversation import Conversation, MakeSession
from penstock.v1 import broker_pb2 as pb

LOG = logging.getLogger("penstock.grpc")
NAME = pb.DESCRIPTOR.services_by_name["Broker"].full_name
#: Users whose calls are prepared; the next one makes this begin afresh.
PREPARED_MAX = 1000

Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"  # both are generic for type checkers alone
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
#: A call of somebody who is known.
Behaviour: TypeAlias = Callable[[Caller, Context], Awaitable[None]]
Answer: TypeAlias = Callable[[Caller, bytes], Awaitable[bytes]]


class Service(grpc.GenericRpcHandler):
    """See the module."""

    def __init__(self, runtime: Runtime, door: Door, callers: Callers, calls: Calls) -> None:
        self._runtime = runtime
        self._door = door
        self._callers = callers
        self._calls = calls
        self._conversations: set[Conversation] = set()
        #: Calls that are not answered yet.
        self._at_work = 0
        self._is_idle = asyncio.Event()
        self._is_leaving = False
        self._answers: dict[str, Answer] = {"Enqueue": calls.enqueue}
        for level, table in ((Level.SYNC, SYNCED), (Level.READY, READY)):
            for name, (kind, deed) in table.items():
                self._answers[name] = partial(calls.do, kind, deed, level)
        self._behaviours: dict[str, Behaviour] = {
            "Poll": self._poll,
            "EnqueueStream": partial(self._converse, lambda caller: partial(Batches, caller)),
            "Subscribe": partial(self._converse, lambda caller: partial(Subscriber, caller, door.new_id)),
        }
        for name, answer in self._answers.items():
            self._behaviours[name] = partial(self._answer_streamed, answer)
        self._prepared: dict[Access, dict[str, Handler]] = {}
        #: What those may do who say nothing of themselves, where nobody has to log in.
        self._anybody: Access | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        """Return what handles a call, None if there is no such method."""
        service, _, name = handler_call_details.method.removeprefix("/").partition("/")
        if service != NAME or name not in self._behaviours:
            return None
        if self._is_leaving:
            return grpc.stream_stream_rpc_method_handler(_refuse_late)
        authorization = _authorization(handler_call_details.invocation_metadata)
        if authorization is None and self._anybody is not None:
            return self._handler(self._anybody, name)
        found: list[Access | PenstockError] = []
        looking = self._look(authorization, found)
        if found and isinstance(found[0], Access):
            if authorization is None:
                self._anybody = found[0]
            return self._handler(found[0], name)
        return grpc.stream_stream_rpc_method_handler(partial(self._after_login, name, looking))

    async def leave(self, seconds: float) -> None:
        """End everything that goes on, in good order; what was begun has some seconds for it."""
        self._is_leaving = True
        self._calls.close()
        for conversation in list(self._conversations):
            conversation.session.leave()
        self._is_idle.clear()
        if self._at_work:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), seconds)

    def _look(
        self, authorization: str | None, found: list[Access | PenstockError]
    ) -> "asyncio.Future[Access | PenstockError]":
        """Look who somebody is; what is known at once is put into `found`."""
        looking: asyncio.Future[Access | PenstockError] = asyncio.get_running_loop().create_future()

        def then(access: Access | PenstockError) -> None:
            found.append(access)
            if not looking.done():
                looking.set_result(access)

        try:
            user, secret = _credentials(authorization)
        except PenstockError as error:
            then(error)
        else:
            self._door.login(user, secret, then)
        return looking

    def _handler(self, access: Access, name: str) -> Handler:
        """Return what handles the calls of a user, which was prepared for one before, mostly."""
        handlers = self._prepared.get(access)
        if handlers is None:
            if len(self._prepared) >= PREPARED_MAX:
                self._prepared.clear()
            handlers = self._prepared[access] = self._prepare(access)
        return handlers[name]

    def _prepare(self, access: Access) -> dict[str, Handler]:
        handlers: dict[str, Handler] = {}
        for name, behaviour in self._behaviours.items():
            answer = self._answers.get(name)
            if answer is not None:
                handlers[name] = grpc.unary_unary_rpc_method_handler(self._answering(answer, access))
            else:
                handlers[name] = grpc.stream_stream_rpc_method_handler(partial(self._behave, behaviour, access))
        return handlers

    # Calls of those who are known.

    def _answering(self, answer: Answer, access: Access) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Return what answers a request with a response; the library looks at a plain function faster than at others."""
        caller_of = self._callers.of

        async def answered(data: bytes, context: Context) -> bytes:
            self._at_work += 1
            try:
                return await answer(caller_of(access), data)
            except Exception as error:  # noqa: BLE001  # what it is decides what the peer is told
                await refuse(error, context)
            finally:
                self._answered()

        return answered

    async def _behave(self, behaviour: Behaviour, access: Access, _: object, context: Context) -> None:
        self._at_work += 1
        try:
            await behaviour(self._callers.of(access), context)
        except aio.BaseError as error:  # of the library: the peer has gone, and can be told nothing
            LOG.debug("a peer of gRPC has gone: %s", error)
        except Exception as error:  # noqa: BLE001  # as above
            await refuse(error, context)
        finally:
            self._answered()

    def _answered(self) -> None:
        self._at_work -= 1
        if not self._at_work:
            self._is_idle.set()

    async def _answer_streamed(self, answer: Answer, caller: Caller, context: Context) -> None:
        """Do the same for somebody who was a stranger a moment ago."""
        await context.write(await answer(caller, await only(context)))

    async def _poll(self, caller: Caller, context: Context) -> None:
        await self._calls.poll(caller, await only(context), context.time_remaining(), context.write)

    async def _converse(self, make: Callable[[Caller], MakeSession], caller: Caller, context: Context) -> None:
        conversation = Conversation(self._runtime, make(caller), context)
        self._conversations.add(conversation)
        try:
            await conversation.run()
        finally:
            self._conversations.discard(conversation)

    # Calls of strangers.

    async def _after_login(
        self, name: str, looking: "asyncio.Future[Access | PenstockError]", requests: object, context: Context
    ) -> None:
        """Let a call go on once it is known who makes it; until then nothing of it is read."""
        access = await looking
        if isinstance(access, PenstockError):
            await refuse(access, context)
        else:
            await self._behave(self._behaviours[name], access, requests, context)


async def _refuse_late(_: object, context: Context) -> None:
    await refuse(closing(), context)


async def refuse(error: Exception, context: Context) -> NoReturn:
    """End a call with what went wrong; an error that nobody has foreseen is shown in the log alone."""
    if isinstance(error, PenstockError):
        await context.abort(grpc.StatusCode[status_of(error)], error.message, metadata_of(error))
    if not isinstance(error, aio.AbortError):
        LOG.error("a call failed by a mistake of the broker", exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "the broker made a mistake; its log has more")
    raise error


async def only(context: Context) -> bytes:
    """Return the request of a call that has one."""
    data: object = await context.read()
    if not isinstance(data, bytes):
        raise BadRequest("the call has no request", key="request")
    return data


def _authorization(metadata: Sequence[tuple[str, str | bytes]] | None) -> str | None:
    for name, value in metadata or ():
        if name == "authorization":
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None


def _credentials(authorization: str | None) -> tuple[str | None, str | None]:
    """Return user and secret of `Basic …`."""
    if authorization is None:
        return None, None
    scheme, _, encoded = authorization.partition(" ")
    try:
        user, colon, secret = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (NotBase64, ValueError):
        colon = user = secret = ""
    if scheme.lower() != "basic" or not colon:
        raise PermissionDenied("authorization must be `Basic` and user:secret in base64", key="login")
    return user, secret
