"""HTTP/1.1 by hand: what servers have to do with what peers send."""

import pytest

from tests.served import Served
from tests.server.conftest import Serve
from tests.server.raw import CONNECT, Raw, peak_bytes, when_there_is_room

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


def test_a_connection_takes_one_request_after_the_other(served: Served) -> None:
    """It stays open, and the last answer says that it does not."""
    with Raw(served.native) as peer:
        assert peer.send(GET).response().status == 200
        assert peer.send(GET).response().headers.get("connection") is None
        last = peer.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).response()
        assert last.headers["connection"] == "close"
        assert peer.rest() == b""


def test_requests_sent_ahead_are_answered_in_their_order(served: Served) -> None:
    """A hundred at once, also one that is cut anywhere."""
    paths = [f"/status/q{number}" for number in range(100)]
    requests = "".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths).encode()
    with Raw(served.native) as peer:
        peer.send(requests[:1001]).send(requests[1001:])
        for number in range(100):
            response = peer.response()
            assert response.status == 404
            assert f"no queue q{number}".encode() in response.body


def test_http_1_0_ends_after_its_answer(served: Served) -> None:
    """And needs no Host."""
    with Raw(served.native) as peer:
        assert peer.send(b"GET /healthz HTTP/1.0\r\n\r\n").response().body == b'{"status":"ok"}\n'
        assert peer.rest() == b""


def test_head_is_answered_as_get_is_without_the_body(served: Served) -> None:
    """Its length and all headers; the next answer follows at once."""
    with Raw(served.native) as peer:
        got = peer.send(GET).response()
        headed = peer.send(GET.replace(b"GET", b"HEAD")).response(to_head=True)
        assert headed.headers.keys() == got.headers.keys()
        assert headed.headers["content-length"] == str(len(got.body))
        assert peer.send(GET).response().body == got.body


@pytest.mark.parametrize(
    ("request_line", "status", "code"),
    [
        ("GET /nowhere", 404, "NoObject"),
        ("GET /healthz/more", 404, "NoObject"),
        ("GET /status/none", 404, "NoObject"),
        ("OPTIONS *", 404, "NoObject"),
        ("CONNECT a:1", 404, "NoObject"),
        ("POST /healthz", 405, "BadRequest"),
        ("DELETE /api/v1/overview", 405, "BadRequest"),
        ("GET /status/", 400, "BadRequest"),
        ("GET /status/%ff", 400, "BadRequest"),
        ("GET /status/a%00", 400, "BadRequest"),
        ("GET /status/a?tags=a&tags=b", 400, "BadRequest"),
        ("PUT /stomp", 426, "BadRequest"),
        ("GET /connect/", 426, "BadRequest"),
    ],
)
def test_what_cannot_be_answered_is_told_in_json(served: Served, request_line: str, status: int, code: str) -> None:
    """With a status that fits, and the connection goes on."""
    with Raw(served.native) as peer:
        response = peer.send(f"{request_line} HTTP/1.1\r\n".encode() + HOST + b"\r\n").response()
        assert response.status == status
        assert f'"error":"{code}"'.encode() in response.body
        assert response.headers.get("allow", "GET, HEAD") == "GET, HEAD"
        assert ("allow" in response.headers) is (status == 405)
        assert peer.send(GET).response().status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET  /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # without Host
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /healthz?%ff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz?" + b"a&" * 101 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"a : b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /" + b"a" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 70_000, 431),
    ],
)
def test_what_is_no_http_ends_the_connection_with_a_reason(served: Served, sent: bytes, status: int) -> None:
    """Which is fit for the peer; nobody else notices."""
    with Raw(served.native) as other, Raw(served.native) as peer:
        response = peer.send(sent).response()
        assert response.status == status
        assert response.headers["connection"] == "close"
        assert b"bytearray" not in response.body
        assert peer.rest() == b""
        assert other.send(GET).response().status == 200


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
def test_a_body_that_is_too_large_is_refused_while_it_is_sent(served: Served, method: bytes) -> None:
    """The peer is not cut off in the middle of it: it can send to its end, and read why it was refused."""
    with Raw(served.native) as peer:
        peer.send(method + b" /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 30000000\r\n\r\n")
        response = peer.send(bytes(30_000_000)).response(to_head=method == b"HEAD")
        assert response.status == 413
        assert peer.rest() == b""


def test_bodies_come_in_one_piece_or_in_chunks(served: Served) -> None:
    """What follows them is the next request."""
    chunked = b"POST /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    whole = b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
    with Raw(served.native) as peer:
        peer.send(chunked + whole + GET)
        assert [peer.response().status for _ in range(3)] == [405, 405, 200]


def test_a_peer_that_asks_first_is_told_to_go_on(served: Served) -> None:
    """`Expect: 100-continue`."""
    with Raw(served.native) as peer:
        peer.send(b"POST /healthz HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert peer.response().status == 100
        assert peer.send(b"abc").response().status == 405


def test_a_peer_that_asks_first_with_too_much_is_refused_at_once(served: Served) -> None:
    """It need not send what would be thrown away."""
    with Raw(served.native) as peer:
        peer.send(b"POST /healthz HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 30000000\r\n\r\n")
        assert peer.response().status == 413


def test_a_peer_that_has_no_more_to_say_is_still_answered(served: Served) -> None:
    """It may have closed its half."""
    with Raw(served.native) as peer:
        peer.send(GET + GET).socket.shutdown(1)
        assert peer.response().status == 200
        assert peer.response().status == 200
        assert peer.rest() == b""


@pytest.mark.parametrize("sent", [b"GET /heal", b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\nabc"])
def test_a_slow_request_is_given_up(serve: Serve, sent: bytes) -> None:
    """It has its seconds, head and body each; an answer says so."""
    served = serve("--limit", "http_request_seconds=300ms")
    with Raw(served.native) as peer:
        assert peer.send(sent).response().status == 408
        assert peer.rest() == b""


def test_a_connection_that_asks_nothing_more_is_closed(serve: Serve) -> None:
    """Without a word, after the seconds that idle ones have."""
    served = serve("--limit", "http_idle_seconds=300ms")
    with Raw(served.native) as peer:
        assert peer.send(GET).response().status == 200
        assert peer.rest() == b""


def test_a_peer_that_asks_and_does_not_read_is_not_answered_on_and_on(serve: Serve) -> None:
    """Answers wait until it reads, and it is dropped when it does not; memory is bounded meanwhile."""
    served = serve("--limit", "stalled_seconds=500ms", "--limit", "connections_max=1")
    publish = b"".join(b"SEND\ndestination:/queue/q%d\n\n\0" % number for number in range(1000))
    with Raw(served.stomp) as publisher:
        publisher.send(CONNECT + publish + b"DISCONNECT\nreceipt:1\n\n\0").rest()
    question = b"GET /api/v1/queues HTTP/1.1\r\n" + HOST + b"\r\n"
    with admitted(served, question) as peer:
        size = len(peer.response().body)
        peer.send(question * 500)
        with admitted(served, GET) as next_one:  # there is room for one, so the first has been dropped
            assert next_one.response().status == 200
        assert peak_bytes(served) < size * 500 / 2


def admitted(served: Served, request: bytes) -> Raw:
    """Return a connection that has asked, as soon as there is room for one."""

    def ask() -> Raw:
        peer = Raw(served.native)
        try:
            if peer.send(request).file.peek(1).startswith(b"H"):
                return peer
            raise ConnectionRefusedError
        except OSError:
            peer.close()
            raise

    return when_there_is_room(ask)
