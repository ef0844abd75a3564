"""A subscription of a STOMP session: its messages as frames, and what is not acknowledged yet."""

from collections.abc import Iterable

from penstock.engine.port import Consumer, headers_of
from penstock.model.message import Message, State
from penstock.model.records import Attribute
from penstock.protocols.stomp.frames import escaped, unescapable
from penstock.protocols.stomp.subscribing import AUTO, CLIENT, INDIVIDUAL, SAID

_EXPIRES_AT = int(Attribute.EXPIRES_AT)
_FIRST_TIME = b"redelivered:false\ndelivery-count:1\n"
#: Unacknowledged messages that may be in other hands by now, before they are looked for.
_LOST_MAX = 1024
#: Channels of which a subscription remembers how its frames begin; the next one makes it begin afresh.
_HEADS_MAX = 1000


class Unacked:
    """What was sent and is to be acknowledged, by what an acknowledgement names, in the order in which it was sent."""

    __slots__ = ("_tidied_above", "messages")

    def __init__(self) -> None:
        self.messages: dict[bytes, Message] = {}
        self._tidied_above = _LOST_MAX

    def tidy(self) -> None:
        """Forget messages that are in other hands by now, whenever there are twice as many as were left before."""
        messages = self.messages
        if len(messages) <= self._tidied_above:
            return
        for name, message in list(messages.items()):
            if _is_over(message):
                del messages[name]
        self._tidied_above = 2 * len(messages) + _LOST_MAX


def _is_over(message: Message) -> bool:
    """Tell whether nobody could acknowledge it any more: it is in other hands by now, or settled."""
    again = message.successor
    return message.state is not State.ASSIGNED and (again is None or again.state is not State.WAITING)


class Subscription:
    """Writes MESSAGE frames, and knows which messages an acknowledgement means."""

    __slots__ = (
        "_counter",
        "_heads",
        "_named_acks",
        "_table",
        "_version",
        "ack_mode",
        "consumer",
        "durable",
        "durable_by_rule",
        "id",
        "number",
        "sequence_header",
        "shown_as",
        "unacked",
    )

    def __init__(self, ident: bytes, number: int, ack_mode: bytes, version: str, shared: Unacked) -> None:
        self.id = ident
        self.number = number
        self.ack_mode = ack_mode
        self.consumer: Consumer
        #: Name and pattern of a durable subscriber, and whether it is one by the rule of the broker alone.
        self.durable: tuple[str, str] | None = None
        self.durable_by_rule = False
        #: The destination that messages are shown to have, where it is not that of their channel.
        self.shown_as: str | None = None
        #: Header that shows the sequence of each message.
        self.sequence_header: str | None = None
        self._version = version
        #: Whether acknowledgements name the value of the `ack` header (1.2) rather than the message-id.
        self._named_acks = version == "1.2"
        #: Names of 1.2 are unique to the connection, so those that stand for one message each share one table.
        self._table = shared if self.is_shared else Unacked()
        self.unacked = self._table.messages
        self._counter = 0
        #: The beginnings of frames, by the queue or topic that messages come from.
        self._heads: dict[object, bytes] = {}

    @property
    def is_shared(self) -> bool:
        """Whether its unacknowledged messages are in the connection's table."""
        return self._named_acks and self.ack_mode is INDIVIDUAL

    def frames(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the MESSAGE frames of messages."""
        if self.ack_mode is not AUTO:
            self._table.tidy()
        return [self._frame(message) for message in messages]

    def _frame(self, message: Message) -> bytes:
        record = message.record
        head = self._heads.get(message.cursor) or self._new_head(message)
        body = record[7]
        more = b""
        if self.ack_mode is not AUTO:
            if self._named_acks:
                self._counter += 1
                name = b"%d-%d" % (self.number, self._counter)
                more = b"ack:%b\n" % name
            else:
                name = b"0-%d" % record[3]
                if message.redelivered:
                    self.unacked.pop(name, None)  # it comes after what was sent since it was sent first
            self.unacked[name] = message
        if message.redelivered or record[6] is not None or self.sequence_header is not None:
            more += self._more_headers(message)
        else:
            more += _FIRST_TIME
        return b"%bmessage-id:0-%d\npriority:%d\ntimestamp:%d\n%bcontent-length:%d\n\n%b\0" % (
            head,
            record[3],
            record[5],
            record[2] * 1000,
            more,
            len(body),
            body,
        )

    def end_of_browse(self, destination: str) -> bytes:
        """Return the frame that says that all which waited has been shown."""
        lines = (b"MESSAGE", self._line("destination", destination), b"subscription:" + self._escaped(self.id))
        return b"\n".join(lines) + b"\nmessage-id:browse-end\nbrowser:end\ncontent-length:0\n\n\0"

    def _new_head(self, message: Message) -> bytes:
        cursor = message.cursor
        destination = self.shown_as or f"/{'queue' if cursor.is_queue else 'topic'}/{cursor.name}"
        lines = [b"MESSAGE", self._line("destination", destination), b"subscription:" + self._escaped(self.id)]
        if cursor.tags:
            lines.append(self._line("tags", ",".join(sorted(cursor.tags))))
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        head = self._heads[cursor] = b"\n".join(lines) + b"\n"
        return head

    def _more_headers(self, message: Message) -> bytes:
        record = message.record
        lines = [b"redelivered:%b\ndelivery-count:%d" % (b"true" if message.redelivered else b"false", message.attempt)]
        lines += [self._line(name, value) for name, value in headers_of(record).items() if _is_own(name)]
        attributes = record[6]
        if attributes is not None and _EXPIRES_AT in attributes:
            lines.append(b"expires:%d" % (attributes[_EXPIRES_AT] * 1000))
        if self.sequence_header is not None:
            lines.append(self._line(self.sequence_header, str(record[3])))
        return b"\n".join(lines) + b"\n"

    def _line(self, name: str, value: str) -> bytes:
        if self._version == "1.0":
            name = name.replace(":", " ")  # it knows no escapes, and would take the rest for the value
        return self._escaped(name.encode()) + b":" + self._escaped(value.encode())

    def _escaped(self, text: bytes) -> bytes:
        return unescapable(text) if self._version == "1.0" else escaped(text)

    def acknowledged(self, name: bytes) -> dict[bytes, Message] | None:
        """Return the messages that an acknowledgement means, and forget them; None if it means nothing here.

        The one that it names comes last. Others that it takes along are those that are assigned still.
        """
        if name not in self.unacked:
            return None
        if self.ack_mode is not CLIENT:
            return {name: self.unacked.pop(name)}
        earlier = []
        for other in self.unacked:
            if other == name:
                break
            earlier.append(other)
        meant = {other: self.unacked.pop(other) for other in earlier}
        meant = {other: message for other, message in meant.items() if message.state is State.ASSIGNED}
        meant[name] = self.unacked.pop(name)
        return meant

    def restore(self, meant: dict[bytes, Message], now: float) -> None:
        """Let messages be acknowledged again whose transaction came to nothing; after UNSUBSCRIBE they wait again."""
        for name, message in list(meant.items()):
            if message.state is State.ASSIGNED and not message.consumer.is_open:
                message.cursor.release(message, now)
                del meant[name]
            elif _is_over(message):
                del meant[name]
        later: dict[bytes, Message] = {}
        if not self.is_shared:  # one acknowledgement may mean many, so their order counts
            later.update(self.unacked)
            self.unacked.clear()
        self.unacked.update(meant)
        self.unacked.update(later)

    def held(self) -> list[Message]:
        """Return what it has sent that is neither acknowledged nor in other hands."""
        return [
            message
            for message in self.unacked.values()
            if message.state is State.ASSIGNED and message.consumer is self.consumer
        ]

    def forget(self) -> None:
        """Forget all that it has sent."""
        for name, message in list(self.unacked.items()):
            if message.consumer is self.consumer:
                del self.unacked[name]


def _is_own(name: str) -> bool:
    """Tell whether a publisher may name a header so, whatever a version makes of colons and spaces."""
    return name.replace(":", " ").strip() not in SAID and name != ""
