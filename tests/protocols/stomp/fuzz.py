"""Frames that were damaged on purpose, for the parser and for whole sessions; each has a seed and a number to play it again.

The parser is held against `plain_parser` on the same bytes, cut anywhere. Sessions may answer damage by ERROR alone: no
exception, nothing lost for others, and nothing kept for those who have gone.
"""

import random

from penstock.protocols.stomp.frames import Frame, FrameLimits, Parser
from tests.protocols.stomp.peers import Peer, World, frame
from tests.protocols.stomp.plain_parser import understood

LIMITS = FrameLimits(head_bytes_max=600, headers_max=12, body_bytes_max=300)
#: What programs send, for parsers and sessions alike.
SAID = (
    frame("CONNECT", "accept-version:1.0,1.1,1.2", "host:/", "heart-beat:100,100", "login:guest"),
    frame("SEND", "destination:/queue/a", body=b"hello"),
    frame("SEND", "destination:/queue/a", "receipt:7", body=b"hello", length=False),
    frame("SEND", "destination:/queue/a", "priority:9", "ttl:50", "receipt:8", "colour:red\\c", body=b"a\0b"),
    frame("SEND", "destination:/topic/t.a", "x-delay:10", "JMSXGroupID:g", "content-type:text/plain"),
    frame("SEND", "destination:/queue/a", "transaction:t", "dedup-id:d", "key:k", body=b"x" * 40),
    frame("SEND", "destination:/queue/a", "tags:eu,fast", "reply-to:/temp-queue/r"),
    frame("SUBSCRIBE", "id:1", "destination:/queue/a", "ack:client-individual", "prefetch-count:2"),
    frame("SUBSCRIBE", "id:2", "destination:/topic/t.#", "ack:client", "durable:true", "selector:a = 'b'"),
    frame("SUBSCRIBE", "id:3", "destination:/queue/a", "browser:true", "match:any", "tags:eu", "from-seq:2"),
    frame("SUBSCRIBE", "id:4", "destination:/temp-queue/r", "work-timeout:1.5", "exclusive:true", "include-seq:s"),
    frame("ACK", "id:1-1", "receipt:9"),
    frame("ACK", "id:1-2", "transaction:t"),
    frame("NACK", "id:1-1", "requeue:false"),
    frame("BEGIN", "transaction:t"),
    frame("COMMIT", "transaction:t", "receipt:10"),
    frame("ABORT", "transaction:t"),
    frame("UNSUBSCRIBE", "id:1"),
    frame("UNSUBSCRIBE", "id:2", "durable:true"),
    frame("DISCONNECT", "receipt:11"),
    frame("SEND", "destination:/queue/a", *(f"header-{number}:{'x' * 40}" for number in range(8)), body=b"long"),
    b"SEND\r\ndestination:/queue/a\r\nlong:" + b"x" * 300 + b"\r\n\r\nlong\0",
    b"\r\nSEND\r\ndestination:/queue/a\r\ncontent-length:3\r\n\r\na\nb\0\r\n",
    b"\n",
)
#: What is put between, or in the place of, other bytes.
_PIECES = (
    b"\0", b"\n", b"\n\n", b"\r", b"\r\n", b":", b"\\", b"\\c", b"\\n", b"\\t", b"\xff", b" ", b"-1", b"0", b"1",
    b"999999999999", b"4294967296", b"1e9", b"content-length:3\n", b"content-length:\n", b"true", b"false",
    b"/queue/", b"/topic/", b"/temp-queue/", b"#", b"*", b"destination:/queue/b\n", b"receipt:r\n", b"x" * 70, b"a:b\n" * 9,
)  # fmt: skip


#: How many changes a frame gets, as often as they stand here: a session ends at the first error, a parser begins afresh.
_FOR_PARSERS, _FOR_SESSIONS = (0, 1, 1, 2, 4), (0, 0, 0, 0, 0, 0, 0, 1, 2)


def damaged(choice: random.Random, changes: tuple[int, ...]) -> bytes:
    """Return a frame that some program could have sent, with a little of it changed; now and then it is whole."""
    data = choice.choice(SAID)
    for _ in range(choice.choice(changes)):
        start = choice.randrange(len(data) + 1)
        end = min(len(data), start + choice.choice((0, 0, 1, 3, 20)))
        kind = choice.randrange(5)
        if kind == 0:
            piece = choice.choice(_PIECES)
        elif kind == 1:
            piece = bytes([choice.randrange(256)])
        elif kind == 2:
            piece = b""
        elif kind == 3:
            piece = data[start:end] * 2
        else:
            other = choice.choice(SAID)
            piece = other[choice.randrange(len(other)) :]
        data = data[:start] + piece + data[end:]
    return data


def in_pieces(stream: bytes, choice: random.Random) -> list[bytes]:
    """Return a stream as the network may cut it."""
    if choice.random() < 0.2:
        return [bytes([byte]) for byte in stream]
    cuts = sorted(choice.randrange(len(stream) + 1) for _ in range(choice.choice((0, 1, 2, 5))))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def check_parser(seed: int, number: int) -> int:
    """Hold the parser against the grammar on one stream of damaged frames; returns how many came out whole."""
    choice = random.Random(f"{seed}-{number}")
    stream = b"".join(damaged(choice, _FOR_PARSERS) for _ in range(choice.choice((1, 1, 2, 4))))
    escapes = choice.random() < 0.8
    parser = Parser(LIMITS)
    parser.escapes = escapes
    found: list[Frame] = []
    for piece in in_pieces(stream, choice):
        found += parser.feed(piece)
    expected = understood(stream, LIMITS, escapes=escapes)
    case = f"seed {seed}, number {number}: {stream!r}"
    assert found == expected.frames, f"other frames than the grammar has; {case}"
    if not expected.may_be_refused:
        assert (parser.error is not None) is expected.is_wrong, f"{parser.error}; {case}"
    return len(found)


class SessionFuzz:
    """Peers that send damaged frames to one broker, and one that does not and must not notice."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.errors = self.number = 0
        self._bystander = world.peer()
        self._peer: Peer | None = None

    async def run(self, first: int, count: int) -> None:
        """Send damaged frames number `first` and on."""
        await self._bystander.take_from("/queue/bystander", ack="auto")
        for self.number in range(first, first + count):
            choice = random.Random(f"{self.seed}-{self.number}")
            try:
                await self._one(choice)
            except Exception as error:
                error.add_note(f"seed {self.seed}, number {self.number}")
                raise
        for peer in self.world.peers:
            if peer is not self._bystander:
                await peer.vanish()
        assert not any(client.held for client in self.world.runtime.engine.clients)

    async def _one(self, choice: random.Random) -> None:
        peer = self._peer
        if peer is None or not peer.is_open:
            peer = self._peer = self.world.peer(choice.choice(("1.0", "1.1", "1.2")))
        for piece in in_pieces(damaged(choice, _FOR_SESSIONS), choice):
            peer.session.receive(piece)
        await self.world.quiet()
        if self.number % 50 == 0:
            await self.world.wait(choice.choice((0.1, 1.0, 3.0)))
            await self._bystander.publish("/queue/bystander", str(self.number))
            assert self._bystander.bodies() == [str(self.number)]
        if not peer.is_open:
            self._count_end(peer)
        elif choice.random() < 0.05:
            await peer.vanish()
            self.world.peers.remove(peer)

    def _count_end(self, peer: Peer) -> None:
        """Count how it ended: by an ERROR, after which nothing came, or because it said DISCONNECT."""
        self.world.peers.remove(peer)
        commands = [one.command for one in peer.frames]
        assert "ERROR" not in commands[:-1]
        self.errors += commands[-1:] == ["ERROR"]
