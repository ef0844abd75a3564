"""A subscription of a STOMP session: its messages as frames, and what is not acknowledged yet."""

from collections.abc import Iterable

from penstock.engine.port import Consumer, headers_of
from penstock.model.message import Message, State
from penstock.model.records import Attribute
from penstock.protocols.stomp.frames import escaped, unescapable

AUTO, CLIENT, INDIVIDUAL = b"auto", b"client", b"client-individual"
ACK_MODES = (AUTO, CLIENT, INDIVIDUAL)
_EXPIRES_AT = int(Attribute.EXPIRES_AT)


class Subscription:
    """Writes MESSAGE frames, and knows which messages an acknowledgement means."""

    __slots__ = (
        "ack_mode",
        "consumer",
        "durable",
        "id",
        "named_acks",
        "number",
        "pattern",
        "unacked",
        "_counter",
        "_head",
        "_heads",
        "_version",
    )

    def __init__(self, ident: bytes, number: int, ack_mode: bytes, version: str) -> None:
        self.id = ident
        self.number = number
        self.ack_mode = ack_mode
        self.consumer: Consumer
        #: Name of a durable subscription, and the topic or pattern it is to.
        self.durable: str | None = None
        self.pattern = ""
        #: Whether acknowledgements name the value of the `ack` header (1.2) rather than the message-id.
        self.named_acks = version == "1.2"
        #: What is to be acknowledged, by what an acknowledgement names, in the order in which it was sent.
        self.unacked: dict[bytes, Message] = {}
        self._counter = 0
        self._version = version
        #: The beginnings of frames, by the queue or topic that messages come from.
        self._heads: dict[object, bytes] = {}

    def frames(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the MESSAGE frames of messages."""
        return [self._frame(message) for message in messages]

    def _frame(self, message: Message) -> bytes:
        record = message.record
        cursor = message.cursor
        head = self._heads.get(cursor) or self._new_head(cursor)
        body = record[7]
        ack = b""
        if self.ack_mode is not AUTO:
            if self.named_acks:
                self._counter += 1
                name = b"%d-%d" % (self.number, self._counter)
                ack = b"ack:%b\n" % name
            else:
                name = b"0-%d" % record[3]
            self.unacked[name] = message
        if message.redelivered or record[6] is not None:
            ack += self._more_headers(message)
        return b"%bmessage-id:0-%d\npriority:%d\n%bcontent-length:%d\n\n%b\0" % (
            head,
            record[3],
            record[5],
            ack,
            len(body),
            body,
        )

    def _new_head(self, cursor: object) -> bytes:
        kind = "queue" if cursor.is_queue else "topic"  # type: ignore[attr-defined]
        destination = f"/{kind}/{cursor.name}"  # type: ignore[attr-defined]
        lines = [b"MESSAGE", self._line("destination", destination), b"subscription:" + self._escaped(self.id)]
        tags = sorted(cursor.tags)  # type: ignore[attr-defined]
        if tags:
            lines.append(self._line("tags", ",".join(tags)))
        head = self._heads[cursor] = b"\n".join(lines) + b"\n"
        return head

    def _more_headers(self, message: Message) -> bytes:
        lines = [b"redelivered:%b\ndelivery-count:%d" % (b"true" if message.redelivered else b"false", message.attempt)]
        lines += [self._line(name, value) for name, value in headers_of(message.record).items()]
        attributes = message.record[6]
        if attributes is not None and _EXPIRES_AT in attributes:
            lines.append(b"expires:%d" % (attributes[_EXPIRES_AT] * 1000))
        return b"\n".join(lines) + b"\n"

    def _line(self, name: str, value: str) -> bytes:
        return self._escaped(name.encode()) + b":" + self._escaped(value.encode())

    def _escaped(self, text: bytes) -> bytes:
        return unescapable(text) if self._version == "1.0" else escaped(text)

    def acknowledged(self, name: bytes) -> dict[bytes, Message] | None:
        """Return the messages that an acknowledgement means, and forget them; None if it means nothing here."""
        if name not in self.unacked:
            return None
        if self.ack_mode is not CLIENT:
            return {name: self.unacked.pop(name)}
        meant: dict[bytes, Message] = {}
        for other in list(self.unacked):
            meant[other] = self.unacked.pop(other)
            if other == name:
                break
        return meant

    def restore(self, meant: dict[bytes, Message]) -> None:
        """Let messages be acknowledged again whose transaction came to nothing."""
        self.unacked = {**meant, **self.unacked}

    def forget_lost(self) -> None:
        """Forget messages that are in other hands by now."""
        for name, message in list(self.unacked.items()):
            if message.state is not State.ASSIGNED:
                del self.unacked[name]
