"""A STOMP session: frames in, calls of the engine; messages and confirmations, frames out. It owns no socket.

What a session does at each frame stands here; what its subscriptions do stands in `consuming`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from penstock.engine.port import BrokerPort, Client, Outcome, Publish, Settle, is_pattern, settle
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, PenstockError
from penstock.model.message import Message
from penstock.model.names import NO_TAGS, QueueKey, is_temporary
from penstock.model.publication import PRIORITY_DEFAULT
from penstock.model.stages import Level
from penstock.protocols.door import Carrier, Door
from penstock.protocols.stomp.consuming import Subscriptions
from penstock.protocols.stomp.destinations import EXISTING, TEMPORARY, Target, parsed
from penstock.protocols.stomp.frames import Frame, FrameLimits, Parser, escaped, unescapable
from penstock.protocols.stomp.headers import Texts, decoded, flag, heart_beats, tags_of
from penstock.protocols.stomp.heart_beats import HeartBeats
from penstock.protocols.stomp.publishing import publication_of
from penstock.protocols.stomp.subscription import Subscription
from penstock.protocols.stomp.temporary import TemporaryQueues, is_lost_answer, name_in
from penstock.protocols.stomp.transactions import Transactions

VERSIONS = ("1.2", "1.1", "1.0")
#: Until then a stranger has to have logged in.
LOGIN_SECONDS = 10.0
#: What a peer may send ahead while its login is looked at.
SENT_AHEAD_BYTES_MAX = 64 * 2**10
#: Destinations that a session remembers; the next one makes it begin afresh.
TARGETS_MAX = 1000
#: The headers of a SEND that say nothing of the message.
_PLAIN = frozenset({b"destination", b"content-length", b"receipt"})
REFUSED = "refused"


@dataclass(slots=True, frozen=True)
class StompOptions:
    """What an operator chooses for all sessions."""

    server: str
    frames: FrameLimits
    #: Every subscriber with a `client-id` is durable.
    durable_topics: bool = False


class Session:
    """See the module."""

    __slots__ = (
        "_access", "_beats", "_bytes", "_carrier", "_client", "_client_id", "_door", "_engine", "_is_leaving",
        "_login_by", "_options", "_out", "_parser", "_port", "_receipts", "_sent_ahead", "_subscriptions", "_targets",
        "_temporary", "_transactions", "_version", "is_closed",
    )  # fmt: skip

    def __init__(self, port: BrokerPort, door: Door, carrier: Carrier, options: StompOptions) -> None:
        self._port = port
        self._engine = port.engine
        self._door = door
        self._carrier = carrier
        self._options = options
        self._parser = Parser()
        self._client: Client | None = None
        self._client_id = ""
        self._access: Access
        #: What came while the login is looked at; None when it is not.
        self._sent_ahead: bytes | None = None
        self._version = "1.0"
        self._subscriptions: Subscriptions
        self._temporary: TemporaryQueues
        self._transactions = Transactions(port.engine.limits)
        self._targets: dict[bytes, Target] = {}
        #: Confirmations of this wake-up that wait for the disk, and frames that wait for nothing.
        self._receipts: list[bytes] = []
        self._out: list[bytes] = []
        self._bytes = 0
        self.is_closed = False
        #: Whether the peer has said DISCONNECT, so that only its receipts are to come.
        self._is_leaving = False
        self._beats = HeartBeats()
        self._login_by = 0.0

    # What the carrier calls.

    @property
    def is_known(self) -> bool:
        """Whether the peer has logged in."""
        return self._client is not None

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer."""
        self._beats.is_heard = True
        if self._sent_ahead is not None:
            self._sent_ahead += data
            if len(self._sent_ahead) > SENT_AHEAD_BYTES_MAX:
                self.fail("too much was sent before the answer to CONNECT", None, "TooLarge")
            return
        if self.is_closed or self._is_leaving:
            return
        frames = self._parser.feed(data)
        if frames:
            self._handle_all(frames)
        if self._parser.error is not None:
            self.fail(str(self._parser.error), None, self._parser.error.code)
        self._finish_wake_up()

    def turn(self, now: float) -> float:
        """Do what is due: the end of waiting for a login, heart-beats both ways, and browsing."""
        if self.is_closed:
            return inf
        if self._sent_ahead is not None:  # the peer has done its part
            return inf
        if self._client is None:
            self._login_by = self._login_by or now + LOGIN_SECONDS
            if now >= self._login_by:
                self.fail(f"no login came within {LOGIN_SECONDS:.0f} seconds", None, "BadRequest")
                return inf
            return self._login_by
        if self._beats.is_silent(now):
            self.fail("no heart-beat came in time", None, "HeartBeat")
            return inf
        if self._beats.is_due(now):
            self._carrier.send((b"\n",))
        return min(self._beats.next_time(now), self._subscriptions.show_more(now))

    def hold_back(self) -> None:
        """Hand nothing more out to a peer that does not read."""
        if self._client is not None:
            self._subscriptions.hold()

    def go_on(self) -> None:
        """Hand out again."""
        if self._client is not None and not self._is_leaving:
            self._subscriptions.let_go()
            self._port.touch()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        self._end(self._engine.clients.disconnect)

    def leave(self) -> None:
        """End in good order: what the peer holds waits again and does not count as failed."""
        self._end(self._engine.clients.leave)

    def fail(self, text: str, receipt: bytes | None, code: str) -> None:
        """Tell the peer what is wrong, and close. What it sent in this wake-up is not confirmed any more."""
        if self.is_closed:
            return
        lines = [b"ERROR", b"message:" + self._escaped(code.encode())]
        if receipt is not None:
            lines.append(b"receipt-id:" + self._escaped(receipt))
        if code == "Version":
            lines.append(b"version:1.0,1.1,1.2")
        body = text.encode(errors="replace")
        lines += [b"content-type:text/plain", b"content-length:%d" % len(body)]
        self._out.append(b"\n".join(lines) + b"\n\n" + body + b"\0")
        self._send_out()
        self.lost()
        self._carrier.close()

    def fail_by(self, error: PenstockError, receipt: bytes | None = None) -> None:
        """Tell the peer of an error, and close."""
        self.fail(error.message, receipt, error.code)

    # Frames.

    def _handle_all(self, frames: list[Frame]) -> None:
        now = self._port.now()
        individual = None if self._client is None else self._subscriptions.individual
        for command, headers, body in frames:
            try:
                if command == b"SEND" and individual is not None:
                    self._send(headers, body, now)
                elif command == b"ACK" and individual and len(headers) == 1 and headers.get(b"id") in individual:
                    message = individual.pop(headers[b"id"])
                    message.cursor.finish(message, now)
                else:
                    self._handle(command, headers)
                    if self._is_leaving or self.is_closed:
                        return
            except PenstockError as error:
                self.fail_by(error, headers.get(b"receipt"))
                return

    def _handle(self, command: bytes, headers: dict[bytes, bytes]) -> None:
        if self._client is None:
            if command not in (b"CONNECT", b"STOMP"):
                raise BadRequest("the first frame must be CONNECT or STOMP", key="command")
            self._connect(decoded(headers))
            return
        handler = COMMANDS.get(command)
        if handler is None:
            if command in (b"CONNECT", b"STOMP"):
                raise BadRequest("this connection has logged in already", key="command")
            raise BadRequest(f"there is no command {command[:32].decode(errors='replace')}", key="command")
        handler(self, headers)

    def _connect(self, headers: Texts) -> None:
        offered = [version.strip() for version in headers.get("accept-version", "1.0").split(",")]
        version = next((version for version in VERSIONS if version in offered), None)
        if version == "1.0":
            headers = {name.strip(): value.strip() for name, value in headers.items()}
        if version is None:
            self.fail("the versions spoken here are 1.0, 1.1 and 1.2", None, "Version")
            return
        beats_in, beats_out = heart_beats(headers.get("heart-beat", "0,0"))
        if version != "1.0":
            self._beats.agree(beats_in / 1000, beats_out / 1000)
        self._client_id = headers.get("client-id", "")
        self._sent_ahead = self._parser.rest()
        self._door.login(headers.get("login"), headers.get("passcode"), partial(self._logged_in, version))

    def _logged_in(self, version: str, access: Access | PenstockError) -> None:
        """Begin, now that the peer may come in, or send it away."""
        if self.is_closed:
            return
        ahead, self._sent_ahead = self._sent_ahead, None
        if isinstance(access, PenstockError):
            self.fail_by(access)
            return
        self._access = access
        client = self._client = self._engine.clients.connect(self._port.now(), self._door.new_id(), user=access.user)
        self._version = version
        self._parser.limits = self._options.frames
        self._parser.escapes = version != "1.0"
        self._subscriptions = Subscriptions(self._port, self._carrier, client, version, self.fail_by)
        self._temporary = TemporaryQueues(self._engine, client)
        self._port.watch(self._look_at_store)
        lines = [f"CONNECTED\nversion:{version}\nserver:{self._options.server}\nsession:{client.id.hex()}"]
        if version != "1.0":
            lines.append(f"heart-beat:{self._beats.sent * 1000:.0f},{self._beats.expected * 1000:.0f}")
        self._out.append("\n".join(lines).encode() + b"\n\n\0")
        self._carrier.turn_at_once()
        self.receive(ahead or b"")

    def _send(self, headers: dict[bytes, bytes], body: bytes, now: float) -> None:
        name = headers.get(b"destination")
        if name is None:
            raise BadRequest("SEND needs a destination", key="destination")
        target = self._targets.get(name) or self._learn(name)
        if not headers.keys() <= _PLAIN:
            self._send_with_care(target, headers, body, now)
            return
        self._port.check_room()
        self._publish(target.queue or target.topic, target, body, now, PRIORITY_DEFAULT, None)
        receipt = headers.get(b"receipt")
        if receipt is not None:
            self._receipts.append(receipt)

    def _send_with_care(self, target: Target, headers: dict[bytes, bytes], body: bytes, now: float) -> None:
        texts = decoded(headers)
        reply_to = name_in(texts.get("reply-to"))
        if reply_to is not None:
            texts["reply-to"] = f"/queue/{self._replies(reply_to, now).name}"
        publication = publication_of(texts, now)
        attributes, priority = publication.attributes(now, self._engine.limits), publication.priority
        channel: QueueKey | str = target.topic
        if target.queue is not None:
            tags = tags_of(texts)
            channel = target.queue if not tags else QueueKey(target.queue.name, tags)
        elif "tags" in texts:
            raise BadRequest("topics have no tags", key="tags")
        transaction = headers.get(b"transaction")
        if transaction is not None:
            begun = self._transactions.find(transaction)
            if isinstance(channel, str) or not target.is_existing or self._exists(channel):
                begun.add(Publish(channel, body, priority, attributes))
            self._confirm(headers)
            return
        self._port.check_room()
        self._publish(channel, target, body, now, priority, attributes)
        self._confirm(headers, is_durable="persistent" not in texts or flag(texts, "persistent"))

    def _publish(
        self,
        channel: QueueKey | str,
        target: Target,
        body: bytes,
        now: float,
        priority: int,
        attributes: dict[int, object] | None,
    ) -> None:
        self._bytes += len(body)
        if isinstance(channel, str):
            self._engine.publish_topic(channel, body, now, self._me, priority, attributes)
        elif not target.is_existing or self._exists(channel):
            self._engine.publish(channel, body, now, self._me, priority, attributes)

    def _exists(self, key: QueueKey) -> bool:
        """Tell whether a queue that must not be made is there; an answer to somebody who has gone is dropped."""
        if key in self._engine.channels.queues:
            return True
        if not is_temporary(key.name):
            self._engine.channels.queue(key)
        return False

    def _replies(self, name: str, now: float) -> QueueKey:
        """Return the temporary queue that answers go to, subscribed to if the peer never did."""
        if not self._temporary.has(name):
            key = self._temporary.made(name, now)
            self._subscriptions.add_for_replies(name, key)
        return self._temporary.made(name, now)

    def _subscribe(self, headers: dict[bytes, bytes]) -> None:
        texts = decoded(headers)
        ident = headers.get(b"id", headers.get(b"destination") if self._version == "1.0" else None)
        if ident is None or b"destination" not in headers:
            raise BadRequest("SUBSCRIBE needs an id and a destination", key="id")
        subscription = self._subscriptions.subscribe(
            ident, texts, self._access, self._temporary, self._client_id, durable_topics=self._options.durable_topics
        )
        if subscription is None or subscription.durable is None:
            self._confirm(headers)
        else:
            self._confirm(headers, is_durable=True)
            self._subscriptions.begin_when_synced(subscription)

    def _unsubscribe(self, headers: dict[bytes, bytes]) -> None:
        ident = headers.get(b"id", headers.get(b"destination") if self._version == "1.0" else None)
        self._subscriptions.unsubscribe(ident, decoded(headers), self._access, self._client_id)
        self._confirm(headers, is_durable=True)

    def _ack(self, headers: dict[bytes, bytes]) -> None:
        self._settle(headers, Outcome.FINISH)

    def _nack(self, headers: dict[bytes, bytes]) -> None:
        if self._version == "1.0":
            raise BadRequest("NACK is not a command of STOMP 1.0", key="command")
        again = headers.get(b"requeue", b"true")
        if again not in {b"true", b"false"}:
            raise BadRequest("requeue must be true or false", key="requeue")
        self._settle(headers, Outcome.FAIL if again == b"true" else Outcome.REJECT)

    def _settle(self, headers: dict[bytes, bytes], outcome: Outcome) -> None:
        name = headers.get(b"transaction")
        transaction = None if name is None else self._transactions.find(name)
        subscription, meant = self._meant(headers)
        reason = "" if outcome is Outcome.FINISH else REFUSED
        messages = [*reversed(meant.values())]  # the one that was named first: if it is refused, nothing has changed
        if transaction is not None:
            transaction.acknowledged.append((subscription, meant))
            for message in messages:
                transaction.add(Settle(message, outcome, reason))
            self._confirm(headers)
            return
        now = self._port.now()
        for message in messages:
            settle(message, outcome, reason, now)
        self._confirm(headers, is_durable=True)

    def _meant(self, headers: dict[bytes, bytes]) -> tuple[Subscription, dict[bytes, Message]]:
        """Return the messages that an ACK or NACK means, and their subscription."""
        name = headers.get(b"id" if self._version == "1.2" else b"message-id")
        if name is None:
            raise BadRequest("the frame does not say which message it means", key="id")
        ident = None if self._version == "1.2" else headers.get(b"subscription")
        found = self._subscriptions.acknowledged(name, ident)
        if found is None:
            raise NoObject(f"there is no message {name.decode(errors='replace')} to be acknowledged", key="id")
        return found

    def _begin(self, headers: dict[bytes, bytes]) -> None:
        self._transactions.begin(_transaction(headers))
        self._confirm(headers)

    def _commit(self, headers: dict[bytes, bytes]) -> None:
        transaction = self._transactions.end(_transaction(headers))
        if transaction.publishes:
            self._port.check_room()
        wanted = [operation for operation in transaction.operations if not is_lost_answer(operation, self._engine)]
        self._engine.transact(wanted, self._me, self._port.now())
        self._bytes += transaction.bytes
        self._confirm(headers, is_durable=True)

    def _abort(self, headers: dict[bytes, bytes]) -> None:
        self._transactions.end(_transaction(headers)).take_back(self._port.now())
        self._confirm(headers)

    def _disconnect(self, headers: dict[bytes, bytes]) -> None:
        self._is_leaving = True
        self._subscriptions.hold()  # what it was given now would count as failed without having been worked on
        self._confirm(headers, is_durable=True)
        receipts, self._receipts = self._receipts, []
        self._port.after(Level.SYNC, partial(self._say_goodbye, receipts))

    # Inside.

    @property
    def _me(self) -> Client:
        assert self._client is not None  # noqa: S101  # only frames after CONNECT come here
        return self._client

    def _learn(self, name: bytes) -> Target:
        try:
            destination = parsed(name.decode())
        except UnicodeDecodeError:
            raise BadRequest("the destination is not valid UTF-8", key="destination") from None
        if destination.kind == TEMPORARY:
            return Target(self._temporary.known(destination.name), "", is_existing=True)
        if destination.is_topic and is_pattern(destination.name):
            raise BadRequest(f"a message goes to one topic, not to a pattern: {destination.name!r}", key="destination")
        is_reply = not destination.is_topic and is_temporary(destination.name)
        if not is_reply:
            self._access.check(Action.PUBLISH, destination.name)
        queue = None if destination.is_topic else QueueKey(destination.name, NO_TAGS)
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        target = self._targets[name] = Target(queue, destination.name, is_reply or destination.kind == EXISTING)
        return target

    def _confirm(self, headers: dict[bytes, bytes], *, is_durable: bool = False) -> None:
        receipt = headers.get(b"receipt")
        if receipt is None:
            return
        if is_durable:
            self._receipts.append(receipt)
        else:
            self._out.append(b"RECEIPT\nreceipt-id:%b\n\n\0" % self._escaped(receipt))

    def _finish_wake_up(self) -> None:
        """Do once what all frames of this wake-up need."""
        self._send_out()
        self._port.touch(self._bytes)
        self._bytes = 0
        if self._receipts:
            receipts, self._receipts = self._receipts, []
            self._port.after(Level.SYNC, partial(self._send_receipts, receipts))

    def _send_out(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self._carrier.send(out)

    def _send_receipts(self, receipts: list[bytes]) -> None:
        if not self.is_closed:
            self._carrier.send([b"RECEIPT\nreceipt-id:%b\n\n\0" % self._escaped(receipt) for receipt in receipts])

    def _say_goodbye(self, receipts: list[bytes]) -> None:
        if not self.is_closed:
            self._send_out()  # with a store that is at once done, nothing of this wake-up has gone out yet
            if receipts:
                self._send_receipts(receipts)
            self.lost()
            self._carrier.close()

    def _end(self, let_go: Callable[[Client, float], None]) -> None:
        self.is_closed = True
        # Sessions are garbage in cycles, which is looked for seldom; bodies must not wait for that.
        self._parser = Parser()
        self._transactions.forget()
        if self._client is not None:
            client, self._client = self._client, None
            self._subscriptions.forget()
            self._port.unwatch(self._look_at_store)
            now = self._port.now()
            let_go(client, now)
            self._temporary.remove(now)
            self._port.touch()

    def _look_at_store(self) -> None:
        """Tell the peer if nothing can be promised any more."""
        try:
            self._port.check()
        except PenstockError as error:
            self.fail_by(error)

    def _escaped(self, text: bytes) -> bytes:
        if text.isalnum():
            return text
        return unescapable(text) if self._version == "1.0" else escaped(text)


COMMANDS: dict[bytes, Callable[[Session, dict[bytes, bytes]], None]] = {
    b"SUBSCRIBE": Session._subscribe,
    b"SUB": Session._subscribe,
    b"UNSUBSCRIBE": Session._unsubscribe,
    b"UNSUB": Session._unsubscribe,
    b"ACK": Session._ack,
    b"NACK": Session._nack,
    b"BEGIN": Session._begin,
    b"COMMIT": Session._commit,
    b"ABORT": Session._abort,
    b"DISCONNECT": Session._disconnect,
}


def _transaction(headers: dict[bytes, bytes]) -> bytes:
    name = headers.get(b"transaction")
    if not name:
        raise BadRequest("the frame does not say which transaction it means", key="transaction")
    return name
