"""A native session: requests in, calls of the engine; messages, notices and answers out. It owns no socket.

What a session does by itself stands here: hello, login, resume, and the order of things in a wake-up. What all other
requests do stands in the modules that `OF_PEER` and `OF_CONSUMING` name.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from penstock.engine.port import BrokerPort, Client, Notice
from penstock.model.access import Access
from penstock.model.errors import BadRequest, NoObject, NotAssigned, PenstockError, PermissionDenied, TooLarge
from penstock.model.stages import STAGE_NAMES, Level
from penstock.protocols.door import Carrier, Door, Greeting
from penstock.protocols.native import managing, settling
from penstock.protocols.native.answers import Answers
from penstock.protocols.native.consuming import Consuming
from penstock.protocols.native.json import Refused
from penstock.protocols.native.messages import (
    UINT64_MAX,
    Alter,
    AnyRequest,
    AskStatus,
    Batch,
    Create,
    Delete,
    Fail,
    Fetch,
    Finish,
    Hello,
    Keepalive,
    Login,
    Ping,
    Pong,
    Pop,
    Post,
    Purge,
    Reject,
    Release,
    Request,
    Resume,
    Subscribe,
    Unsubscribe,
)
from penstock.protocols.native.peer import Peer, checked_u64
from penstock.protocols.native.publishing import post
from penstock.protocols.native.settling import finish
from penstock.protocols.native.streams import Found, Messages, Stream

#: Until then a stranger has to have logged in.
LOGIN_SECONDS = 10.0
#: What a stranger may say at once, and send ahead while its login is looked at.
STRANGER_BYTES_MAX = 64 * 2**10
#: A request is at most as long as a body in JSON numbers, and so much for all else.
REQUEST_BYTES_BESIDES = 4 * 2**20
_BYTES_PER_NUMBER = len("255,")
_NAMES = {stage: name for name, stage in STAGE_NAMES.items()}

OF_PEER: dict[type[Request], Callable[[Peer, Any, float], None]] = {
    Create: managing.create,
    Alter: managing.alter,
    Delete: managing.delete,
    Purge: managing.purge,
    Post: post,
    Finish: finish,
    Fail: settling.settle_otherwise,
    Release: settling.settle_otherwise,
    Reject: settling.settle_otherwise,
    Keepalive: settling.keepalive,
    Batch: settling.batch,
    AskStatus: managing.status,
}
OF_CONSUMING: dict[type[Request], Callable[[Consuming, Any, float], None]] = {
    Pop: Consuming.pop,
    Fetch: Consuming.fetch,
    Subscribe: Consuming.subscribe,
    Unsubscribe: Consuming.unsubscribe,
}


class Session:
    """What sessions on streams and on WebSockets have in common."""

    __slots__ = (
        "_ahead", "_ahead_bytes", "_answers", "_carrier", "_consuming", "_door", "_greeting", "_id", "_is_begun",
        "_is_fresh", "_login_by", "_peer", "_port", "_stream", "_wake_at", "is_closed",
    )  # fmt: skip

    def __init__(self, port: BrokerPort, door: Door, carrier: Carrier, stream: Stream, greeting: Greeting) -> None:
        self._port = port
        self._door = door
        self._carrier = carrier
        self._stream = stream
        self._greeting = greeting
        self._answers = Answers(port, carrier, stream.writer)
        self._id = b""
        self._peer: Peer | None = None
        self._consuming: Consuming
        #: Whether nothing was asked yet that counts on who the peer is.
        self._is_fresh = True
        #: What came while the login is looked at, and its size; None when it is not.
        self._ahead: Found | None = None
        self._ahead_bytes = 0
        self._is_begun = False
        self._login_by = 0.0
        self._wake_at = inf
        self.is_closed = False
        stream.bytes_max = STRANGER_BYTES_MAX
        port.soon(self._begin)

    # What the carrier calls.

    @property
    def is_known(self) -> bool:
        """Whether the peer has logged in, or need not."""
        return self._peer is not None

    def turn(self, now: float) -> float:
        """Do what is due: the end of waiting for a login, and of pops and fetches."""
        self._begin()
        if self.is_closed or self._ahead is not None:  # a peer whose login is looked at has done its part
            return inf
        if self._peer is None:
            self._login_by = self._login_by or now + LOGIN_SECONDS
            if now >= self._login_by:
                self._fail(PermissionDenied(f"no login came within {LOGIN_SECONDS:.0f} seconds", key="login"))
                return inf
            return self._login_by
        broker_now = self._port.now()
        self._wake_at = self._consuming.end_waits(broker_now)
        self._answers.send_out()
        self._port.touch()
        return now + self._wake_at - broker_now

    def hold_back(self) -> None:
        """Hand nothing more out to a peer that does not read; notices are kept for it, up to a limit."""
        if self._peer is not None:
            self._consuming.hold()
            self._peer.client.on_notice = None

    def go_on(self) -> None:
        """Hand out again."""
        peer = self._peer
        if peer is None:
            return
        missed, peer.client.missed = peer.client.missed, []
        if len(missed) >= peer.limits.missed_notices_max:
            self._fail(_too_many(missed))
            return
        peer.client.on_notice = self._notice
        for notice in missed:
            self._notice(notice)
        self._consuming.let_go()
        self._port.touch()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        self._part(self._port.engine.clients.disconnect)

    def leave(self) -> None:
        """End in good order: what the peer holds waits again, unless it has asked to be kept."""
        self._part(self._keep_or_leave)

    # Beginning.

    def _begin(self) -> None:
        """Say hello, and let in whoever needs no login."""
        if self._is_begun or self.is_closed:
            return
        self._is_begun = True
        self._id = self._door.new_id()
        self._port.watch(self._look_at_store)
        self._answers.say(Hello(id=self._id.hex()))
        if self._greeting.access is not None:
            self._enter(self._greeting.access)
        else:
            self._ask_door(None, None, self._let_in)
        self._answers.send_out()

    def _ask_door(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        self._ahead, self._ahead_bytes = [], 0
        self._door.login(user, secret, then)

    def _let_in(self, access: Access | PenstockError) -> None:
        """Let somebody in without a login, or wait for one."""
        if isinstance(access, Access) and not self.is_closed:
            self._enter(access)
        self._go_on_after_door()

    def _logged_in(self, label: int | None, access: Access | PenstockError) -> None:
        if self.is_closed:
            return
        if isinstance(access, PenstockError):
            self._answers.refuse(access, label)
        else:
            self._enter(access)
            self._answers.confirm(label)
        self._go_on_after_door()

    def _go_on_after_door(self) -> None:
        ahead, self._ahead = self._ahead, None
        if not self.is_closed:
            self._handle_all(ahead or [])
            self._finish_wake_up()
            self._carrier.turn_at_once()

    def _enter(self, access: Access) -> None:
        clients, now = self._port.engine.clients, self._port.now()
        if self._peer is not None:
            clients.leave(self._peer.client, now)
        self._become(clients.connect(now, self._id, user=access.user, returns=True), access)

    def _become(self, client: Client, access: Access) -> None:
        client.on_notice = self._notice
        client.on_close = self._displaced
        self._peer = Peer(self._port, access, self._answers, client)
        self._consuming = Consuming(self._peer, self._wake)
        self._stream.bytes_max = _BYTES_PER_NUMBER * self._peer.limits.body_bytes_max + REQUEST_BYTES_BESIDES

    # Requests.

    def _hear(self, found: Found, size: int) -> None:
        """Handle requests, or keep them until it is known who the peer is."""
        if self._ahead is None:
            self._handle_all(found)
        else:
            self._ahead += found
            self._ahead_bytes += size
            if self._ahead_bytes > STRANGER_BYTES_MAX:
                self._fail(TooLarge("too much was sent before the answer to login", key="login"))
        if self._stream.error is not None:
            self._fail(self._stream.error)

    def _handle_all(self, found: Found) -> None:
        peer, now = self._peer, self._port.now()
        for place, request in enumerate(found):
            if self.is_closed:  # by the request before, or by the look at the time: the broker may have lost its store
                return
            label = request.label
            try:
                if label is not None and label > UINT64_MAX:
                    label = None
                    checked_u64(request.label or 0, "label")
                if type(request) is Post and peer is not None:
                    self._is_fresh = False
                    post(peer, request, now)
                elif type(request) is Finish and peer is not None:
                    self._is_fresh = False
                    finish(peer, request, now)
                else:
                    self._handle(request, now)
                    peer = self._peer
            except PenstockError as error:
                self._answers.refuse(error, label)
            if self._ahead is not None:
                self._ahead += found[place + 1 :]
                return

    def _handle(self, request: AnyRequest | Refused, now: float) -> None:
        if isinstance(request, Refused):
            raise request.error
        if isinstance(request, Ping):
            self._answers.say(Pong(label=request.label))
        elif isinstance(request, Login):
            self._check_fresh("login")
            self._ask_door(request.user, request.secret, partial(self._logged_in, request.label))
        elif self._peer is None:
            raise PermissionDenied("a login is needed here: say who you are by `login`", key="login")
        elif isinstance(request, Resume):
            self._resume(self._peer, request, now)
        else:
            self._is_fresh = False
            of_peer = OF_PEER.get(type(request))
            if of_peer is not None:
                of_peer(self._peer, request, now)
            else:
                OF_CONSUMING[type(request)](self._consuming, request, now)

    def _check_fresh(self, key: str) -> None:
        if not self._is_fresh:
            raise BadRequest("this comes before all that counts on who you are", key=key)

    def _resume(self, peer: Peer, request: Resume, now: float) -> None:
        """Go on as a client of before, if one is named, and keep it from now on for as long as is asked."""
        clients, client = self._port.engine.clients, peer.client
        missed: list[Notice] = []
        if request.id is not None and (ident := _bytes_of(request.id)) != client.id:
            self._check_fresh("id")
            client = self._found(peer, ident)
            missed = clients.resume(client, now)
            clients.leave(peer.client, now)
            self._id = client.id
            self._become(client, peer.access)
        if request.resume_timeout is not None:
            clients.keep_for(client, request.resume_timeout, now)
        self._answers.promise(Level.SYNC, Hello(id=client.id.hex(), label=request.label))
        self._answers.synced += [self._written(notice) for notice in missed]
        if len(missed) >= peer.limits.missed_notices_max:
            self._answers.refuse(_too_many(missed), None, Level.SYNC)

    def _found(self, peer: Peer, ident: bytes) -> Client:
        client = self._port.engine.clients.find(ident, peer.access.user)
        if client is None or not client.returns:
            raise NoObject(f"there is no client {ident.hex()[:40]} of yours that could be resumed", key="id")
        return client

    # What the broker calls.

    def _notice(self, notice: Notice) -> None:
        """Tell a stage that a message of the peer has reached."""
        out = self._answers.out
        if not out:
            self._port.soon(self._answers.send_out)
        out.append(self._written(notice))

    def _written(self, notice: Notice) -> bytes:
        return self._answers.writer.notice(notice.label, _NAMES[notice.stage])

    def _displaced(self) -> None:
        """Make room for another connection that goes on as this client."""
        self._consuming.give_back_unsent(self._port.now())
        self._peer = None
        self._fail(NotAssigned("another connection has resumed this client", key="id"))

    def _look_at_store(self) -> None:
        """Tell the peer if nothing can be promised any more."""
        try:
            self._port.check()
        except PenstockError as error:
            self._fail(error)

    # Inside.

    def _wake(self, at: float) -> None:
        """See that there is a turn by then."""
        if at < self._wake_at:
            self._wake_at = at
            self._carrier.turn_at_once()

    def _finish_wake_up(self) -> None:
        """Do once what all requests of this wake-up need."""
        size = 0
        if self._peer is not None:
            size, self._peer.bytes = self._peer.bytes, 0
        self._answers.finish_wake_up()
        self._port.touch(size)

    def _fail(self, error: PenstockError) -> None:
        """Tell the peer what is wrong, and close. What it asked in this wake-up is not confirmed any more."""
        if self.is_closed:
            return
        self._answers.refuse(error, None)
        self._answers.send_out()
        self.lost()
        self._carrier.close()

    def _keep_or_leave(self, client: Client, now: float) -> None:
        clients = self._port.engine.clients
        if client.resume_timeout:
            clients.disconnect(client, now)
        else:
            clients.leave(client, now)

    def _part(self, let_go: Callable[[Client, float], None]) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._answers.close()
        self._port.unwatch(self._look_at_store)
        self._stream.forget()
        if self._peer is not None:
            now = self._port.now()
            self._consuming.give_back_unsent(now)
            let_go(self._peer.client, now)
            self._peer.held.forget()
            self._port.touch()


class StreamSession(Session):
    """A session of JSON lines or bincode frames."""

    __slots__ = ()

    def __init__(self, port: BrokerPort, door: Door, carrier: Carrier, stream: Stream) -> None:
        super().__init__(port, door, carrier, stream, Greeting())

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer."""
        if self.is_closed:
            return
        self._begin()
        found = self._stream.feed(data)
        self._stream.check()
        self._hear(found, len(data))
        self._finish_wake_up()


class MessageSession(Session):
    """A session on a WebSocket; the header `Binary: true` makes its answers bincode."""

    __slots__ = ("_is_ending", "_messages", "sends_text")

    def __init__(self, port: BrokerPort, door: Door, carrier: Carrier, greeting: Greeting) -> None:
        self._messages = Messages(answers_binary=greeting.headers.get("binary", "").lower() == "true")
        super().__init__(port, door, carrier, self._messages, greeting)
        self.sends_text = self._messages.writer.is_text
        #: Whether the end of this wake-up is asked for: many messages come in one.
        self._is_ending = False

    def receive(self, data: bytes) -> None:
        """Take nothing; all comes as messages."""

    def receive_message(self, data: bytes, *, is_text: bool) -> None:
        """Handle the payload of one message."""
        if self.is_closed:
            return
        self._begin()
        self._hear(self._messages.read(data, is_text=is_text), len(data))
        if not self._is_ending:
            self._is_ending = True
            self._port.soon(self._end_wake_up)

    def _end_wake_up(self) -> None:
        self._is_ending = False
        self._finish_wake_up()


def _too_many(missed: list[Notice]) -> TooLarge:
    """Return what is said when notices that came after these may be lost."""
    return TooLarge(f"{len(missed)} notices waited to be read, and no more can (missed_notices_max)", key="notify")


def _bytes_of(ident: str) -> bytes:
    try:
        return bytes.fromhex(ident)
    except ValueError:
        raise BadRequest(f"id is {ident[:40]!r}; it must be that of a hello, in hexadecimal", key="id") from None
