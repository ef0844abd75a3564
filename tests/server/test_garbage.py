"""Nonsense of all kinds, at all doors: it is answered or not, and nobody else notices."""

import random
from collections.abc import Iterator

import pytest

from tests.served import Served
from tests.server.raw import CONNECT, Raw, masked

UPGRADE = (
    b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
SENSE = (
    CONNECT + b"SEND\ndestination:/queue/garbage\n\nmill\0",
    UPGRADE + masked(0x81, CONNECT) + masked(0x81, b"SEND\ndestination:/queue/garbage\n\nmill\0") + masked(0x88),
    b"POST /api/v1/queues?a=b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b'{"type":"post","queue":"garbage","body":"mill"}\n{"type":"ping"}\n',
    b"PSTK\x01\0\0\0\x04" + bytes(4),
)


def nonsense(seed: int) -> Iterator[bytes]:
    """Give what makes sense with bytes changed, left out, doubled and cut off, and some noise."""
    choice = random.Random(seed)
    for _ in range(200):
        data = bytearray(choice.choice(SENSE))
        for _ in range(choice.randint(1, 5)):
            at = choice.randrange(len(data))
            match choice.randrange(4):
                case 0:
                    data[at] = choice.randrange(256)
                case 1:
                    del data[at : at + choice.randint(1, 9)]
                case 2:
                    data[at:at] = data[at : at + choice.randint(1, 40)]
                case _:
                    data[at:at] = choice.randbytes(choice.randint(1, 9))
            data = data or bytearray(b"\0")
        yield bytes(data[: choice.choice([len(data), len(data), len(data) // 2 + 1])])
        yield choice.randbytes(choice.choice([1, 10, 1000]))


@pytest.mark.parametrize("seed", range(5))
def test_nobody_notices_nonsense(served: Served, seed: int) -> None:
    """Its peers are answered as long as they like; the broker has nothing to say on stderr, which is looked at later."""
    with Raw(served.stomp) as other:
        other.send(CONNECT).until(b"\0")
        for at, data in enumerate(nonsense(seed)):
            with Raw(served.native if at % 3 else served.stomp) as peer:
                peer.send(data).socket.shutdown(1)
                if at % 2:
                    peer.rest()
        other.send(b"SEND\ndestination:/queue/other\nreceipt:1\n\n1\0").until(b"RECEIPT\nreceipt-id:1\n\n\0")
    assert served.said() == []
