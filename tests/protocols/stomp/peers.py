"""STOMP sessions without sockets, on a broker whose time stands still until a test lets it pass.

    world = World(); await world.start()
    alice = world.peer("1.2")
    await alice.say("SEND", "destination:/queue/a", body=b"x")

What is said are header lines as they go over the wire, so that a test shows exactly what a program would send.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence

from penstock.engine.readers import Retention
from penstock.model.access import Access
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from penstock.model.names import NO_TAGS, QueueKey
from penstock.protocols.stomp.frames import FrameLimits
from penstock.protocols.stomp.session import Session, StompOptions
from penstock.runtime.clock import Clock
from penstock.runtime.runtime import Runtime
from penstock.store.memory import Memory
from penstock.store.port import Store
from tests.stomp_wire import Frame

PATIENCE = 20.0
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\c": ":", "\\\\": "\\"}


def frame(command: str, *lines: str, body: bytes = b"", length: bool = True) -> bytes:
    """Return the bytes of a frame; with `content-length` if there is a body, unless that is not wanted."""
    sized = (f"content-length:{len(body)}",) if body and length else ()
    return "\n".join((command, *lines, *sized, "", "")).encode(errors="surrogateescape") + body + b"\0"


def frames_in(data: bytes, *, escapes: bool = True) -> list[Frame]:
    """Return the frames in what a session has sent; fails unless they are whole."""
    found = []
    while data:
        if data.startswith(b"\n"):
            data = data[1:]
            continue
        head, blank, rest = data.partition(b"\n\n")
        assert blank, f"this frame has no end: {data!r}"
        command, *lines = head.decode(errors="surrogateescape").split("\n")  # a receipt comes back as it was
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(
                *(_plain(text) if escapes and command != "CONNECTED" else text for text in (name, value))
            )
        size = int(headers["content-length"]) if "content-length" in headers else rest.index(b"\0")
        assert rest[size : size + 1] == b"\0", f"this frame is longer than it says: {data!r}"
        found.append(Frame(command, headers, rest[:size]))
        data = rest[size + 1 :]
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES[found.group()], text)


class StillClock(Clock):
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        super().__init__(lambda: self.seconds, lambda: self.seconds)

    seconds = float(int(time.time()))


class World:
    """A broker on a store, and the peers that talk with it."""

    def __init__(
        self, store: Store | None = None, *, durable_topics: bool = False, limits: Limits | None = None
    ) -> None:
        self.clock = StillClock()
        self.runtime = Runtime(
            store or Memory(), limits=limits or Limits(), auto_create=True, retention=Retention(), clock=self.clock
        )
        frames = FrameLimits(body_bytes_max=self.runtime.engine.limits.body_bytes_max)
        self.options = StompOptions("Penstock/test", frames, durable_topics)
        self.access: Callable[[str], Access | PenstockError] = Access.to_all
        self.peers: list[Peer] = []
        self._ids = 0

    async def start(self) -> None:
        """Begin."""
        await self.runtime.start()

    async def stop(self) -> None:
        """End in good order, as the server does."""
        for peer in self.peers:
            peer.session.leave()
        await self.runtime.stop()

    def peer(self, version: str = "1.2", *lines: str, connect: bool = True) -> "Peer":
        """Return somebody who has said CONNECT, unless that is not wanted."""
        peer = Peer(self, escapes=version != "1.0")
        self.peers.append(peer)
        if connect:
            peer.tell("CONNECT", f"accept-version:{version}", "host:/", *lines)
            assert peer.take().command == "CONNECTED"
        return peer

    async def quiet(self) -> None:
        """Wait until the broker has handled all that has happened, and given each session the turns that were due."""
        await asyncio.sleep(0)
        while self._give_turns() or self.runtime._is_scheduled:  # noqa: ASYNC110  # nobody is told when a wake-up ends
            await asyncio.sleep(0)

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.seconds += seconds
        while self.runtime.engine.sweep(self.runtime.now(), 1000):
            pass
        self.runtime.engine.tidy(self.runtime.now())
        self.runtime.touch()
        await self.quiet()
        for peer in self.peers:
            peer.turn()
        await self.quiet()

    def _give_turns(self) -> bool:
        due = [peer for peer in self.peers if peer.is_open and peer.turns_at <= self.clock.seconds]
        for peer in due:
            peer.turn()
        return bool(due)

    def set_queue(self, name: str, *tags: str, **settings: object) -> None:
        """Make a queue with settings."""
        key = QueueKey(name, frozenset(tags) if tags else NO_TAGS)
        self.runtime.engine.channels.create_queue(key, self.runtime.now(), settings, exclusive=False)

    def set_topic(self, name: str, **settings: object) -> None:
        """Make a topic with settings."""
        self.runtime.engine.channels.create_topic(name, self.runtime.now(), settings, exclusive=False)

    def length(self, name: str, *tags: str) -> int:
        """Return how many messages of a queue are unsettled; 0 if there is no such queue."""
        queue = self.runtime.engine.channels.queues.get(QueueKey(name, frozenset(tags)))
        return 0 if queue is None else queue.length

    # What sessions ask of their door.

    def login(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        """Let somebody in as the test says."""
        then(self.access(user or "guest"))

    def new_id(self) -> bytes:
        """Return the id of a client."""
        self._ids += 1
        return self._ids.to_bytes(16, "big")


class Peer:
    """A program that speaks STOMP; `frames` is what it was sent and has not taken yet."""

    def __init__(self, world: World, *, escapes: bool) -> None:
        self.world = world
        self.is_open = True
        self.beats = 0
        self.turns_at = 0.0
        self.frames: list[Frame] = []
        self._escapes = escapes
        self.session = Session(world.runtime, world, self, world.options)
        self.turn()

    # What a session asks of its carrier.

    def send(self, frames: Sequence[bytes]) -> None:
        """Take what the session sends."""
        assert frames, "it was called for nothing"
        assert self.is_open, f"sent after the end: {frames!r}"
        data = b"".join(frames)
        self.beats += data == b"\n"
        self.frames += frames_in(data, escapes=self._escapes)

    def close(self) -> None:
        """Take note of the end."""
        self.is_open = False

    def turn_at_once(self) -> None:
        """Give the session its turn with the next pause of the test."""
        self.turns_at = 0.0

    # What a test does.

    def turn(self) -> None:
        """Give the session its turn."""
        self.turns_at = self.session.turn(self.world.clock.seconds)

    def tell(self, command: str, *lines: str, body: bytes = b"", length: bool = True) -> None:
        """Send a frame, and do not wait for what comes of it."""
        self.session.receive(frame(command, *lines, body=body, length=length))

    async def say(self, command: str, *lines: str, body: bytes = b"", length: bool = True) -> None:
        """Send a frame, and wait until the broker has handled it."""
        self.tell(command, *lines, body=body, length=length)
        await self.world.quiet()

    async def publish(self, destination: str, *bodies: str, headers: Sequence[str] = ()) -> None:
        """Send messages."""
        for body in bodies:
            self.tell("SEND", f"destination:{destination}", *headers, body=body.encode())
        await self.world.quiet()

    async def take_from(self, destination: str, *lines: str, ident: str = "1", ack: str = "client-individual") -> None:
        """Subscribe."""
        await self.say("SUBSCRIBE", f"id:{ident}", f"destination:{destination}", f"ack:{ack}", *lines)

    def take(self) -> Frame:
        """Return the first frame that was not taken yet."""
        return self.frames.pop(0)

    def bodies(self) -> list[str]:
        """Take all frames, which must be messages, and return their bodies."""
        frames, self.frames = self.frames, []
        assert all(one.command == "MESSAGE" for one in frames), frames
        return [one.body.decode() for one in frames]

    def messages(self) -> list[Frame]:
        """Take all frames, which must be messages."""
        frames, self.frames = self.frames, []
        assert all(one.command == "MESSAGE" for one in frames), frames
        return frames

    def error(self) -> Frame:
        """Take the last frame, which must be an ERROR, after which the connection was closed."""
        last = self.frames.pop()
        assert (last.command, self.is_open) == ("ERROR", False), (last, self.frames)
        return last

    async def vanish(self) -> None:
        """Lose the connection."""
        self.is_open = False
        self.session.lost()
        await self.world.quiet()

    async def receipt(self, name: str) -> None:
        """Wait for a RECEIPT, from a store that takes its time, too."""
        async with asyncio.timeout(PATIENCE):
            while not self._has_receipt(name):  # noqa: ASYNC110  # the session calls nobody
                await asyncio.sleep(0.001)
        self.frames = [one for one in self.frames if one.headers.get("receipt-id") != name]

    async def receipt_of(self, command: str, *lines: str, body: bytes = b"") -> None:
        """Send a frame, and wait for its RECEIPT."""
        self.tell(command, *lines, "receipt:awaited", body=body)
        await self.receipt("awaited")

    async def closed(self) -> None:
        """Wait until the session has closed the connection."""
        async with asyncio.timeout(PATIENCE):
            while self.is_open:  # noqa: ASYNC110  # the session calls nobody
                await asyncio.sleep(0.001)

    def _has_receipt(self, name: str) -> bool:
        return any(one.headers.get("receipt-id") == name for one in self.frames)
