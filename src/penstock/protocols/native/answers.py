"""What a session says: collected while the requests of a wake-up are handled, and sent when it may be."""

from collections.abc import Sequence
from functools import partial

from penstock.engine.port import BrokerPort
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.stages import Level
from penstock.protocols.door import Carrier
from penstock.protocols.native.messages import Answer, Ok, Refusal
from penstock.protocols.native.streams import Writer


class Answers:
    """See the module."""

    __slots__ = ("_carrier", "_port", "is_closed", "out", "synced", "writer", "written")

    def __init__(self, port: BrokerPort, carrier: Carrier, writer: Writer) -> None:
        self._port = port
        self._carrier = carrier
        self.writer = writer
        #: Frames that wait for nothing, and those that wait until all of this wake-up is written, or synced.
        self.out: list[bytes] = []
        self.written: list[bytes] = []
        self.synced: list[bytes] = []
        self.is_closed = False

    def say(self, answer: Answer) -> None:
        """Say something at the end of this wake-up."""
        self.out.append(self.writer.answer(answer))

    def promise(self, level: Level, answer: Answer) -> None:
        """Say something when all of this wake-up is persisted so far."""
        self._until(level).append(self.writer.answer(answer))

    def notify(self, level: Level, label: int, stage: str) -> None:
        """Tell of a stage when all of this wake-up is persisted so far."""
        self._until(level).append(self.writer.notice(label, stage))

    def deliver(self, message: Message, label: int | None) -> None:
        """Send a message at the end of this wake-up."""
        self.out.append(self.writer.delivery(message, label))

    def confirm(self, label: int | None, level: Level = Level.READY, count: int | None = None) -> None:
        """Tell who has given a label that the request is fulfilled."""
        if label is not None:
            self.promise(level, Ok(label=label, count=count))

    def refuse(self, error: PenstockError, label: int | None, level: Level = Level.READY) -> None:
        """Tell that a request is not fulfilled, and why."""
        self._until(level).append(refusal(self.writer, error, label))

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames at once."""
        if not self.is_closed:
            self._carrier.send(frames)

    def send_out(self) -> None:
        """Send what waits for nothing."""
        if self.out:
            out, self.out = self.out, []
            self.send(out)

    def finish_wake_up(self) -> None:
        """Send what waits for nothing, and see that the rest is sent in its time."""
        self.send_out()
        if self.written:
            written, self.written = self.written, []
            self._port.after(Level.WRITE, partial(self.send, written))
        if self.synced:
            synced, self.synced = self.synced, []
            self._port.after(Level.SYNC, partial(self.send, synced))

    def close(self) -> None:
        """Say no more; what was not promised yet is never promised."""
        self.is_closed = True
        self.out, self.written, self.synced = [], [], []

    def _until(self, level: Level) -> list[bytes]:
        if level is Level.READY:
            return self.out
        return self.synced if level is Level.SYNC else self.written


def refusal(writer: Writer, error: PenstockError, label: int | None = None) -> bytes:
    """Return what tells that a request is not fulfilled, and why."""
    return writer.answer(Refusal(label=label, code=error.code, key=error.key, text=error.message))
