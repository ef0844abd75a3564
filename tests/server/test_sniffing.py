"""One port speaks everything: the first bytes tell what."""

import pytest

from penstock.server.sniffing import NOISE_BYTES_MAX, Language, UnknownLanguage, language_of
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.raw import CONNECT, Raw

BEGINNINGS = [
    *[(method + b" / HTTP/1.1\r\n", Language.HTTP) for method in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE")],
    *[(method + b" / HTTP/1.1\r\n", Language.HTTP) for method in (b"OPTIONS", b"PATCH", b"TRACE")],
    (b"CONNECT a:1 HTTP/1.1\r\n", Language.HTTP),
    (b"CONNECT\naccept-version:1.2\n\n\0", Language.STOMP),
    (b"CONNECT\r\naccept-version:1.2\r\n\r\n\0", Language.STOMP),
    (b"STOMP\naccept-version:1.2\n\n\0", Language.STOMP),
    (b"STOMP\r\n", Language.STOMP),
    (b"\n\r\n\nCONNECT\n", Language.STOMP),
    (b'{"type":"ping"}\n', Language.LINES),
    (b' \t\r\n{"type":"ping"}\n', Language.LINES),
    (b"PSTK\x01\0\0\0\0", Language.FRAMES),
]


@pytest.mark.parametrize(("first", "language"), BEGINNINGS)
def test_it_is_told_as_soon_as_it_can_be_and_never_otherwise(first: bytes, language: Language) -> None:
    """However the first bytes are cut, they say nothing until they say the one language."""
    found = [language_of(first[:size]) for size in range(len(first) + 1)]
    decided = found.index(language)
    assert set(found[:decided]) == {None}
    assert set(found[decided:]) == {language}


@pytest.mark.parametrize(
    ("first", "advice"),
    [
        (b"get / HTTP/1.1\r\n", "like nothing spoken here"),
        (b"CONNECTED\n", "like nothing spoken here"),
        (b"STOMPING", "like nothing spoken here"),
        (b"PRI * HTTP/2.0\r\n", "like nothing spoken here"),
        (b"\0", "like nothing spoken here"),
        (b"PSTK\x02", "version 2 are not known here"),
        (b"\x16\x03\x01", "TLS is not spoken at this port"),
        (b"\n" * (NOISE_BYTES_MAX + 1), "white space say nothing"),
    ],
)
def test_nonsense_is_told_so(first: bytes, advice: str) -> None:
    """The text says what might be meant."""
    with pytest.raises(UnknownLanguage, match=advice):
        language_of(first)


def test_white_space_alone_says_nothing_yet() -> None:
    """As far as it may go."""
    assert language_of(b"\n" * NOISE_BYTES_MAX) is None


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (CONNECT, b"CONNECTED\n"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b'{"type":"ping","label":1}\n', b'{"type":"hello"'),
        (b"BREW /pot\r\n", b"error: this begins like nothing"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
def test_every_language_is_answered_in_its_own(served: Served, first: bytes, answer: bytes, at_once: bool) -> None:
    """Whole or in single bytes; what came before the language was known is not lost."""
    with Raw(served.native) as peer:
        for piece in [first] if at_once else [first[at : at + 1] for at in range(len(first))]:
            peer.send(piece)
            if first.startswith(b"BREW"):
                break
        assert peer.file.read(len(answer)) == answer


def test_the_stomp_door_speaks_stomp_alone(served: Served) -> None:
    """It answers nonsense by an ERROR of STOMP."""
    with Raw(served.stomp) as peer:
        assert peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\0").until(b"\0").startswith(b"ERROR\n")


def test_a_stranger_who_says_nothing_is_sent_away(serve: Serve) -> None:
    """After the seconds that strangers have, with a word about it; one who has said what it speaks stays."""
    served = serve("--limit", "first_bytes_seconds=500ms")
    with Raw(served.native).send(CONNECT) as known, Raw(served.native) as silent, Raw(served.native) as slow:
        slow.send(b"CONN")
        assert silent.rest() == slow.rest() == b"error: nothing was said within 0.5 seconds\n"
        known.until(b"\0")
        known.send(b"DISCONNECT\nreceipt:1\n\n\0").until(b"RECEIPT\nreceipt-id:1\n\n\0")
