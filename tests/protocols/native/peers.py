"""Native sessions without sockets, on a broker whose time stands still until a test lets it pass.

    alice = world.native()                       # JSON lines; or "frames", "text", "binary"
    await alice.say("post", queue="a", message="x", label=1)
    assert alice.take() == {"type": "ok", "label": 1, "sequence": 4}

Answers are dictionaries whatever the carrier is, as JSON has them.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.model.access import Access
from penstock.model.errors import StoreFailed
from penstock.protocols.door import Greeting
from penstock.protocols.native import bincode
from penstock.protocols.native.json import shown_body
from penstock.protocols.native.messages import AnyRequest, Delivery
from penstock.protocols.native.session import MessageSession, StreamSession
from penstock.protocols.native.streams import PREFACE, Frames, Lines
from tests.protocols.stomp.peers import PATIENCE
from tests.protocols.stomp.peers import World as StompWorld

Answer = dict[str, Any]
CARRIERS = ("lines", "frames", "text", "binary")


class World(StompWorld):
    """A broker, and the peers that talk with it."""

    def native(self, carrier: str = "lines", *, greets: bool = True, access: Access | None = None) -> "Native":
        """Return somebody who speaks the native protocol, and has taken its hello unless that is not wanted."""
        peer = Native(self, carrier, access)
        self.peers.append(peer)
        peer.begin()
        if greets:
            peer.greet()
        return peer

    async def quiet(self) -> None:
        """Wait until the broker has handled all that has happened, and sessions have told what they gathered meanwhile."""
        for _ in range(3):
            await asyncio.sleep(0)
            await super().quiet()

    async def crash(self) -> None:
        """End as a power cut does: what was not written is gone."""
        self.runtime.fail(StoreFailed("the power was cut", key="store"))
        await self.runtime.stop()

    async def idle(self) -> None:
        """Wait until the store has nothing to do."""
        async with asyncio.timeout(PATIENCE):
            while self.runtime._in_flight is not None or self.runtime.engine.effects.records:  # noqa: ASYNC110  # nobody is told
                await asyncio.sleep(0.001)


class Native:
    """A program that speaks the native protocol; `answers` is what it was sent and has not taken yet."""

    def __init__(self, world: World, carrier: str, access: Access | None = None) -> None:
        self.world = world
        self.is_open = True
        self.id = ""
        self.answers: list[Answer] = []
        #: How often something was sent.
        self.writes = 0
        self.turns_at = 0.0
        self._is_bincode = carrier in {"frames", "binary"}
        self._is_stream = carrier in {"lines", "frames"}
        if self._is_stream:
            stream = Frames() if self._is_bincode else Lines()
            self.session = StreamSession(world.runtime, world, self, stream)
        else:
            headers = {"binary": "true"} if self._is_bincode else {}
            self.session = MessageSession(world.runtime, world, self, Greeting(headers, access))

    # What a session asks of its carrier.

    def send(self, frames: Sequence[bytes]) -> None:
        """Take what the session sends."""
        assert self.is_open, f"sent after the end: {frames!r}"
        self.writes += 1
        self.answers += [self._decoded(frame) for frame in frames]

    def close(self) -> None:
        """Take note of the end."""
        self.is_open = False

    def turn_at_once(self) -> None:
        """Give the session its turn with the next pause of the test."""
        asyncio.get_running_loop().call_soon(self.turn)

    # What a test does.

    def begin(self) -> None:
        """Have the first turn, after the preface if there is one."""
        if self._is_stream and self._is_bincode:
            self.session.receive(PREFACE)
        self.turn()

    def greet(self) -> str:
        """Take the hello; returns the id."""
        hello = self.take()
        assert hello["type"] == "hello", hello
        self.id = hello["id"]
        return self.id

    def turn(self) -> None:
        """Give the session its turn."""
        self.turns_at = self.session.turn(self.world.clock.seconds)

    def tell(self, request: str, **fields: object) -> None:
        """Send a request, and do not wait for what comes of it."""
        self.tell_raw(self._encoded(request, fields))

    def tell_raw(self, payload: bytes) -> None:
        """Send the bytes of one request."""
        if not self._is_stream:
            self.session.receive_message(payload, is_text=not self._is_bincode)
        elif self._is_bincode:
            self.session.receive(len(payload).to_bytes(4, "big") + payload)
        else:
            self.session.receive(payload + b"\n")

    async def say(self, request: str, **fields: object) -> None:
        """Send a request, and wait until the broker has handled it."""
        self.tell(request, **fields)
        await self.world.quiet()

    async def ask(self, request: str, **fields: object) -> Answer:
        """Send a request, and take its one answer."""
        await self.say(request, **fields)
        return self.only()

    async def ask_synced(self, request: str, **fields: object) -> Answer:
        """Send a request, and wait for the one answer that a store lets come which takes its time."""
        self.tell(request, label=99, **fields)
        await self.until(lambda: self.answers)
        return self.only()

    async def ask_for_message(self, request: str, **fields: object) -> Answer:
        """Send a request, and wait for a message; other answers are passed over."""
        self.tell(request, **fields)
        await self.until(lambda: any(answer["type"] == "message" for answer in self.answers))
        return next(answer for answer in self.take_all() if answer["type"] == "message")

    async def refused(self, request: str, **fields: object) -> tuple[str, str | None]:
        """Send a request that is refused; returns the code and the key of its one answer, which names the label."""
        answer = await self.ask(request, label=77, **fields)
        assert answer["type"] == "error", answer
        assert answer["label"] == 77, answer
        assert answer["text"], answer
        return answer["code"], answer.get("key")

    async def post(self, queue: str, *bodies: str, **fields: object) -> None:
        """Publish messages."""
        for body in bodies:
            self.tell("post", queue=queue, message=body, **fields)
        await self.world.quiet()

    def take(self) -> Answer:
        """Return the first answer that was not taken yet."""
        return self.answers.pop(0)

    def only(self) -> Answer:
        """Take all answers, of which there must be one."""
        answers = self.take_all()
        assert len(answers) == 1, answers
        return answers[0]

    def take_all(self) -> list[Answer]:
        """Take all answers."""
        answers, self.answers = self.answers, []
        return answers

    def messages(self) -> list[Answer]:
        """Take all answers, which must be messages."""
        answers = self.take_all()
        assert all(answer["type"] == "message" for answer in answers), answers
        return answers

    def bodies(self) -> list[str]:
        """Take all answers, which must be messages; returns their bodies."""
        return [message["body"] for message in self.messages()]

    def notices(self) -> list[str]:
        """Take all answers, which must be notices; returns their stages."""
        answers = self.take_all()
        assert all(answer["type"] == "notice" for answer in answers), answers
        return [answer["notice"] for answer in answers]

    def last_words(self) -> Answer:
        """Take the last answer, which must be an error after which the connection was closed."""
        assert not self.is_open, self.answers
        last = self.answers.pop()
        assert last["type"] == "error", last
        return last

    async def vanish(self) -> None:
        """Lose the connection."""
        self.is_open = False
        self.session.lost()
        await self.world.quiet()

    async def until(self, test: Callable[[], object]) -> None:
        """Wait for what a store that takes its time lets come."""
        async with asyncio.timeout(PATIENCE):
            while not test():  # noqa: ASYNC110  # the session calls nobody
                await asyncio.sleep(0.001)

    # Inside.

    def _encoded(self, request: str, fields: dict[str, object]) -> bytes:
        given = {"type": request, **fields}
        if self._is_bincode:
            return bincode.written(msgspec.convert(given, AnyRequest))
        return json.dumps(given).encode()

    def _decoded(self, frame: bytes) -> Answer:
        if not self._is_bincode:
            assert frame.endswith(b"}\n") if self._is_stream else frame.endswith(b"}")
            answer: Answer = json.loads(frame)
            return answer
        if self._is_stream:
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            frame = frame[4:]
        read = bincode.read_answer(frame)
        if isinstance(read, Delivery):
            read = msgspec.structs.replace(read, body=shown_body(read.body))
        found: Answer = json.loads(msgspec.json.encode(read))
        return found
