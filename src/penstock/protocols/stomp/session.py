"""A STOMP session: frames in, calls of the engine; messages and confirmations, frames out. It owns no socket."""

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.engine.port import BrokerPort, Client, Consumer, Outcome, Publish, Selection, Settle, settle
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, PenstockError, TooLarge
from penstock.model.message import Message, State
from penstock.model.names import NO_TAGS, QueueKey, checked_tags
from penstock.model.publication import PRIORITY_DEFAULT, checked_body
from penstock.model.selector import parse
from penstock.model.settings import checked_count, checked_timeout
from penstock.model.stages import Level
from penstock.protocols.door import Door
from penstock.protocols.stomp.destinations import Destination, parsed
from penstock.protocols.stomp.frames import Frame, FrameLimits, Parser, escaped, unescapable
from penstock.protocols.stomp.publishing import decoded, publication_of
from penstock.protocols.stomp.subscription import ACK_MODES, AUTO, Subscription

VERSIONS = ("1.2", "1.1", "1.0")
PREFETCH_DEFAULT = 256
TRANSACTIONS_MAX = 16
SUBSCRIPTIONS_MAX = 1000
#: The headers of a SEND that say nothing of the message.
_PLAIN = frozenset({b"destination", b"content-length", b"receipt"})
_HEART_BEAT_MAX = 3_600_000
#: What a peer may send ahead while its login is looked at.
SENT_AHEAD_BYTES_MAX = 64 * 2**10


class Transaction:
    """What a session does at COMMIT, and what it takes back at ABORT."""

    __slots__ = ("acknowledged", "operations")

    def __init__(self) -> None:
        self.operations: list[Publish | Settle] = []
        self.acknowledged: list[tuple[Subscription, dict[bytes, Message]]] = []

    def take_back(self) -> None:
        """Let what was acknowledged in it be acknowledged again."""
        for subscription, meant in reversed(self.acknowledged):
            subscription.restore(meant)


class Session:
    """See the module. `write` takes bytes for the peer, `close` ends the connection when they are sent."""

    def __init__(
        self,
        port: BrokerPort,
        door: Door,
        limits: FrameLimits,
        write: Callable[[bytes], Any],
        close: Callable[[], Any],
        server: str,
    ) -> None:
        self._port = port
        self._engine = port.engine
        self._door = door
        self._limits = limits
        self._write = write
        self._close = close
        self._server = server
        self._parser = Parser()
        self._client: Client | None = None
        self._access: Access
        #: What came while the login is looked at; None when it is not.
        self._sent_ahead: bytes | None = None
        self._version = "1.0"
        self._subscriptions: dict[bytes, Subscription] = {}
        self._transactions: dict[bytes, Transaction] = {}
        self._destinations: dict[bytes, Destination] = {}
        self._receipts: list[bytes] = []
        self._numbers = 0
        self._bytes = 0
        self.is_closed = False
        #: Milliseconds between heart-beats that were agreed on, 0 for none: what is sent, and what is expected.
        self.beats_out = 0
        self.beats_in = 0
        #: Called when the peer has logged in.
        self.on_connected: Callable[[], Any] = lambda: None

    # What the shell calls.

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer."""
        if self._sent_ahead is not None:
            self._sent_ahead += data
            if len(self._sent_ahead) > SENT_AHEAD_BYTES_MAX:
                self.fail("too much was sent before the answer to CONNECT", None, "TooLarge")
            return
        frames = self._parser.feed(data)
        for frame in frames:
            if self.is_closed:
                return
            try:
                self._handle(frame)
            except PenstockError as error:
                self.fail(error.message, frame.headers.get(b"receipt"), error.code)
        if self._parser.error is not None and not self.is_closed:
            self.fail(str(self._parser.error), None, "BadRequest")
        self._finish_wake_up()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        self.is_closed = True
        if self._client is not None:
            client, self._client = self._client, None
            self._engine.clients.disconnect(client, self._port.now())
            self._port.touch()

    def leave(self) -> None:
        """End in good order: what the peer holds waits again and does not count as failed."""
        self.is_closed = True
        if self._client is not None:
            client, self._client = self._client, None
            self._engine.clients.leave(client, self._port.now())
            self._port.touch()

    def hold_back(self) -> None:
        """Hand nothing more out to a peer that does not read."""
        for subscription in self._subscriptions.values():
            subscription.consumer.pause()

    def go_on(self) -> None:
        """Hand out again."""
        if not self.is_closed:
            for subscription in self._subscriptions.values():
                self._engine.effects.hungry[subscription.consumer] = None
            self._port.touch()

    def beat(self) -> None:
        """Send a heart-beat."""
        if not self.is_closed:
            self._write(b"\n")

    def fail(self, text: str, receipt: bytes | None, code: str) -> None:
        """Tell the peer what is wrong, and close."""
        if self.is_closed:
            return
        lines = [b"ERROR", b"message:" + self._escaped(code.encode())]
        if receipt is not None:
            lines.append(b"receipt-id:" + self._escaped(receipt))
        if code == "Version":
            lines.append(b"version:1.0,1.1,1.2")
        body = text.encode()
        lines += [b"content-type:text/plain", b"content-length:%d" % len(body)]
        self._send_receipts_given()
        self._write(b"\n".join(lines) + b"\n\n" + body + b"\0")
        self._end()

    # Commands.

    def _handle(self, frame: Frame) -> None:
        command = frame.command
        if command == b"SEND" and self._client is not None:
            self._send(frame)
            return
        if self._client is None:
            if command not in (b"CONNECT", b"STOMP"):
                raise BadRequest("the first frame must be CONNECT or STOMP", key="command")
            self._connect(frame)
            return
        handler = COMMANDS.get(command)
        if handler is None:
            raise BadRequest(f"there is no command {command[:32].decode(errors='replace')}", key="command")
        handler(self, frame)

    def _connect(self, frame: Frame) -> None:
        headers = decoded(frame.headers)
        offered = headers.get("accept-version", "1.0").split(",")
        version = next((version for version in VERSIONS if version in offered), None)
        if version is None:
            self.fail("the versions spoken here are 1.0, 1.1 and 1.2", None, "Version")
            return
        beats_out, beats_in = _heart_beats(headers.get("heart-beat", "0,0"))
        self.beats_out, self.beats_in = (0, 0) if version == "1.0" else (beats_in, beats_out)
        self._sent_ahead = self._parser.rest()
        self._door.login(headers.get("login"), headers.get("passcode"), partial(self._logged_in, version))

    def _logged_in(self, version: str, access: Access | PenstockError) -> None:
        """Begin, now that the peer may come in, or send it away."""
        if self.is_closed:
            return
        ahead, self._sent_ahead = self._sent_ahead, None
        if isinstance(access, PenstockError):
            self.fail(access.message, None, access.code)
            return
        self._access = access
        self._client = self._engine.clients.connect(self._port.now(), self._door.new_id(), user=access.user)
        self._version = version
        self._parser.limits = self._limits
        self._parser.escapes = version != "1.0"
        lines = [f"CONNECTED\nversion:{version}\nserver:{self._server}\nsession:{self._client.id.hex()}"]
        if version != "1.0":
            lines.append(f"heart-beat:{self.beats_out},{self.beats_in}")
        self._write("\n".join(lines).encode() + b"\n\n\0")
        self.on_connected()
        self.receive(ahead or b"")

    def _send(self, frame: Frame) -> None:
        headers = frame.headers
        name = headers.get(b"destination")
        if name is None:
            raise BadRequest("SEND needs a destination", key="destination")
        self._port.check_room()
        destination = self._destinations.get(name) or self._learn(name)
        body = checked_body(frame.body, self._engine.limits)
        now = self._port.now()
        if headers.keys() <= _PLAIN:
            attributes, priority, tags, is_persistent, transaction = None, PRIORITY_DEFAULT, NO_TAGS, True, None
        else:
            texts = decoded(headers)
            publication = publication_of(texts, now)
            attributes, priority = publication.attributes(now, self._engine.limits), publication.priority
            tags = _tags(texts) or NO_TAGS
            is_persistent = texts.get("persistent", "true") != "false"
            transaction = headers.get(b"transaction")
        channel = destination.name if destination.is_topic else QueueKey(destination.name, tags)
        if transaction is not None:
            self._add(self._transactions[self._known(transaction)], Publish(channel, body, priority, attributes))
            self._confirm(headers, is_durable=False)
            return
        client = self._me
        if isinstance(channel, str):
            self._engine.publish_topic(channel, body, now, client, priority, attributes)
        else:
            self._engine.publish(channel, body, now, client, priority, attributes)
        self._bytes += len(body)
        receipt = headers.get(b"receipt")
        if receipt is not None:
            self._confirm(headers, is_durable=is_persistent)

    def _subscribe(self, frame: Frame) -> None:
        headers = decoded(frame.headers)
        ident = frame.headers.get(b"id", frame.headers.get(b"destination", b"") if self._version == "1.0" else None)
        if ident is None or "destination" not in headers:
            raise BadRequest("SUBSCRIBE needs an id and a destination", key="id")
        if ident in self._subscriptions:
            raise BadRequest(f"there is a subscription {ident.decode()} already", key="id")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise TooLarge(f"{SUBSCRIPTIONS_MAX} subscriptions are the most a connection can have", key="id")
        ack_mode = next((mode for mode in ACK_MODES if mode == frame.headers.get(b"ack", AUTO)), None)
        if ack_mode is None:
            raise BadRequest("ack must be auto, client or client-individual", key="ack")
        self._numbers += 1
        subscription = Subscription(ident, self._numbers, ack_mode, self._version)
        selector = headers.get("selector")
        consumer = Consumer(
            self._me,
            self._deliver(subscription),
            credit=_prefetch(headers, self._engine.limits.credit_max),
            timeout=_work_timeout(headers),
            settles=ack_mode is AUTO,
            exclusive=headers.get("exclusive", headers.get("activemq.exclusive", "false")) == "true",
            selector=None if selector is None else self._engine.selected_by(parse(selector).matches),
        )
        subscription.consumer = consumer
        destination = parsed(headers["destination"])
        self._access.check(Action.CONSUME, destination.name)
        if destination.is_topic:
            self._engine.subscribe_topic(consumer, destination.name, self._port.now())
        else:
            tags = _tags(headers)
            chosen = Selection.checked(destination.name, tags, headers.get("match", "exact"))
            consumer.takes_turns = chosen.takes_turns
            self._engine.subscribe(consumer, chosen)
        self._subscriptions[ident] = subscription
        self._confirm(frame.headers, is_durable=False)

    def _unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        ident = headers.get(b"id", headers.get(b"destination", b"") if self._version == "1.0" else b"")
        subscription = self._subscriptions.pop(ident, None)
        if subscription is None:
            raise NoObject(f"there is no subscription {ident.decode(errors='replace')}", key="id")
        now = self._port.now()
        for message in subscription.unacked.values():
            if message.state is State.ASSIGNED:
                message.cursor.release(message, now)
        subscription.consumer.close(now)
        self._confirm(headers, is_durable=False)

    def _ack(self, frame: Frame) -> None:
        self._settle(frame, Outcome.FINISH)

    def _nack(self, frame: Frame) -> None:
        if self._version == "1.0":
            raise BadRequest("NACK is not a command of STOMP 1.0", key="command")
        self._settle(frame, Outcome.REJECT if frame.headers.get(b"requeue") == b"false" else Outcome.FAIL)

    def _settle(self, frame: Frame, outcome: Outcome) -> None:
        name = frame.headers.get(b"transaction")
        transaction = None if name is None else self._transactions[self._known(name)]
        subscription, meant = self._meant(frame.headers)
        reason = "refused" if outcome is not Outcome.FINISH else ""
        if transaction is not None:
            transaction.acknowledged.append((subscription, meant))
            for message in meant.values():
                self._add(transaction, Settle(message, outcome, reason))
            self._confirm(frame.headers, is_durable=False)
            return
        now = self._port.now()
        for message in meant.values():
            settle(message, outcome, reason, now)
        self._confirm(frame.headers, is_durable=True)

    def _meant(self, headers: dict[bytes, bytes]) -> tuple[Subscription, dict[bytes, Message]]:
        """Return the messages that an ACK or NACK means, and their subscription."""
        name = headers.get(b"id" if self._version == "1.2" else b"message-id")
        if name is None:
            raise BadRequest("the frame does not say which message it means", key="id")
        ident = headers.get(b"subscription")
        if ident is not None and self._version != "1.2":
            candidates = [self._subscriptions[ident]] if ident in self._subscriptions else []
        else:
            candidates = list(self._subscriptions.values())
        for subscription in candidates:
            meant = subscription.acknowledged(name)
            if meant is not None:
                return subscription, meant
        raise NoObject(f"there is no message {name.decode(errors='replace')} to be acknowledged", key="id")

    def _begin(self, frame: Frame) -> None:
        name = _transaction(frame)
        if name in self._transactions:
            raise BadRequest(f"the transaction {name.decode(errors='replace')} was begun already", key="transaction")
        if len(self._transactions) >= TRANSACTIONS_MAX:
            raise TooLarge(f"{TRANSACTIONS_MAX} transactions are the most a connection can have", key="transaction")
        self._transactions[name] = Transaction()
        self._confirm(frame.headers, is_durable=False)

    def _commit(self, frame: Frame) -> None:
        operations = self._transactions.pop(self._known(_transaction(frame))).operations
        if any(isinstance(operation, Publish) for operation in operations):
            self._port.check_room()
        self._engine.transact(operations, self._me, self._port.now())
        self._confirm(frame.headers, is_durable=True)

    def _abort(self, frame: Frame) -> None:
        self._transactions.pop(self._known(_transaction(frame))).take_back()
        self._confirm(frame.headers, is_durable=False)

    def _disconnect(self, frame: Frame) -> None:
        receipt = frame.headers.get(b"receipt")
        if receipt is None:
            self._end()
            return
        self._receipts.append(receipt)
        receipts, self._receipts = self._receipts, []
        self._port.touch()
        self._port.after(Level.SYNC, partial(self._send_last_receipts, receipts))

    # Inside.

    @property
    def _me(self) -> Client:
        assert self._client is not None  # noqa: S101  # only frames after CONNECT come here
        return self._client

    def _learn(self, name: bytes) -> Destination:
        destination = parsed(name.decode(errors="replace"))
        self._access.check(Action.PUBLISH, destination.name)
        if len(self._destinations) > SUBSCRIPTIONS_MAX:
            self._destinations.clear()
        self._destinations[name] = destination
        return destination

    def _known(self, name: bytes) -> bytes:
        if name not in self._transactions:
            raise NoObject(f"there is no transaction {name.decode(errors='replace')}", key="transaction")
        return name

    def _add(self, transaction: Transaction, operation: Publish | Settle) -> None:
        operations = transaction.operations
        most = self._engine.limits.transaction_operations_max
        if len(operations) >= most:
            raise TooLarge(f"the transaction has more than {most} operations", key="transaction", limit=most)
        operations.append(operation)

    def _deliver(self, subscription: Subscription) -> Callable[[Consumer], None]:
        def deliver(consumer: Consumer) -> None:
            messages, consumer.inbox = consumer.inbox, []
            if self.is_closed:
                return
            if messages:
                self._write(b"".join(subscription.frames(messages)))
                if consumer.settles:
                    self._engine.consumed(consumer, len(messages))
            if consumer.failure is not None:
                self.fail(consumer.failure.message, None, consumer.failure.code)

        return deliver

    def _confirm(self, headers: dict[bytes, bytes], *, is_durable: bool) -> None:
        receipt = headers.get(b"receipt")
        if receipt is None:
            return
        if is_durable:
            self._receipts.append(receipt)
        else:
            self._write(b"RECEIPT\nreceipt-id:%b\n\n\0" % self._escaped(receipt))

    def _finish_wake_up(self) -> None:
        """Do once what all frames of this wake-up need."""
        self._port.touch(self._bytes)
        self._bytes = 0
        if self._receipts:
            receipts, self._receipts = self._receipts, []
            self._port.after(Level.SYNC, partial(self._send_receipts, receipts))

    def _send_receipts(self, receipts: list[bytes]) -> None:
        if not self.is_closed:
            self._write(b"".join([b"RECEIPT\nreceipt-id:%b\n\n\0" % self._escaped(receipt) for receipt in receipts]))

    def _send_last_receipts(self, receipts: list[bytes]) -> None:
        self._send_receipts(receipts)
        self._end()

    def _send_receipts_given(self) -> None:
        """Forget receipts of this wake-up: what follows an error is not confirmed, and neither is what just came."""
        self._receipts.clear()

    def _end(self) -> None:
        self.lost()
        self._close()

    def _escaped(self, text: bytes) -> bytes:
        return unescapable(text) if self._version == "1.0" else escaped(text)


COMMANDS: dict[bytes, Callable[[Session, Frame], None]] = {
    b"SUBSCRIBE": Session._subscribe,
    b"UNSUBSCRIBE": Session._unsubscribe,
    b"ACK": Session._ack,
    b"NACK": Session._nack,
    b"BEGIN": Session._begin,
    b"COMMIT": Session._commit,
    b"ABORT": Session._abort,
    b"DISCONNECT": Session._disconnect,
}


def _transaction(frame: Frame) -> bytes:
    name = frame.headers.get(b"transaction")
    if not name:
        raise BadRequest(f"{frame.command.decode()} needs a transaction", key="transaction")
    return name


def _tags(headers: dict[str, str]) -> frozenset[str] | None:
    text = headers.get("tags")
    return None if text is None else checked_tags([tag.strip() for tag in text.split(",") if tag.strip()])


def _heart_beats(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise BadRequest(f"heart-beat is {text!r}; it must be two numbers of milliseconds", key="heart-beat")
    out, back = (min(int(part), _HEART_BEAT_MAX) for part in parts)
    return out, back


def _prefetch(headers: dict[str, str], most: int) -> int:
    for name in ("prefetch-count", "activemq.prefetchSize", "credit"):
        text = headers.get(name)
        if text is not None:
            first = text.split(",")[0]
            if not first.isdecimal() or len(first) > 9:
                raise BadRequest(f"{name} is {text!r}; it must be a number of messages", key=name)
            return checked_count(min(int(first), most), name)
    return PREFETCH_DEFAULT


def _work_timeout(headers: dict[str, str]) -> float | None:
    text = headers.get("work-timeout")
    if text is None:
        return None
    try:
        return checked_timeout(float(text), "work-timeout")
    except ValueError:
        raise BadRequest(f"work-timeout is {text!r}; it must be a number of seconds", key="work-timeout") from None
