"""The handshake of WebSockets."""

import pytest

from penstock.model.errors import BadRequest
from penstock.server.websocket.handshake import accepted, is_upgrade
from tests.served import Served
from tests.server.raw import Raw

ASKED = {
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
}


def test_the_example_of_the_rfc_is_answered_as_it_stands_there() -> None:
    """Section 1.3 of RFC 6455."""
    assert is_upgrade(ASKED)
    answer = accepted(ASKED, ())
    assert dict(answer.headers) == {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    }  # fmt: skip
    assert answer.window_bits == 0


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("v10.stomp, v12.stomp", "v12.stomp"), ("v11.stomp", "v11.stomp"), ("other", None), ("v12.stompx", None)],
)
def test_of_the_subprotocols_the_best_is_chosen(offered: str, chosen: str | None) -> None:
    """Of those that the peer offers."""
    answer = accepted({**ASKED, "sec-websocket-protocol": offered}, ("v12.stomp", "v11.stomp", "v10.stomp"))
    assert dict(answer.headers).get("Sec-WebSocket-Protocol") == chosen


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connection", "keep-alive"),
        ("sec-websocket-key", ""),
        ("sec-websocket-key", "dGhlIHNhbXBsZQ=="),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ"),
        ("sec-websocket-key", "ü"),
    ],
)
def test_a_handshake_has_to_be_whole(name: str, value: str) -> None:
    """And says what is missing."""
    with pytest.raises(BadRequest) as refused:
        accepted({**ASKED, name: value}, ())
    assert refused.value.key == name


def test_other_versions_are_told_which_there_is(served: Served) -> None:
    """By the header that is made for it."""
    with Raw(served.native) as peer:
        peer.send(b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n\r\n")
        response = peer.response()
        assert (response.status, response.headers["sec-websocket-version"]) == (426, "13")


@pytest.mark.parametrize("path", ["/stomp", "/ws", "/connect/", "/connect"])
def test_websockets_begin_at_their_paths(served: Served, path: str) -> None:
    """And nowhere else."""
    with Raw(served.native) as peer:
        assert peer.upgrade(path).status == 101
    with Raw(served.native) as peer:
        assert peer.upgrade("/elsewhere").status == 404
