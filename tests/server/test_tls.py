"""TLS at both doors."""

import resource
import select
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.model.errors import BadRequest
from penstock.server.tls import tls_context
from tests.conftest import require
from tests.server.conftest import Serve, made_certificate
from tests.server.raw import CONNECT, Certificate, Raw, when_there_is_room

TLS = ("--listen", "tls:127.0.0.1:0", "--stomp-listen", "tls:127.0.0.1:0", "--store", "memory")
GOODBYE = b"DISCONNECT\nreceipt:1\n\n\0"


def test_everything_is_spoken_behind_tls(serve: Serve, certificate: Certificate) -> None:
    """HTTP, WebSockets and STOMP; what comes right behind the handshake is not lost, and the end is a proper one."""
    served = serve(*TLS, *certificate.options)
    for address in (served.native, served.stomp):
        with Raw(address, certificate) as peer:
            answer = peer.send(CONNECT + GOODBYE).rest()
            assert answer.startswith(b"CONNECTED\n")
            assert answer.endswith(b"RECEIPT\nreceipt-id:1\n\n\0")
    with Raw(served.native, certificate) as peer:
        assert peer.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").response().status == 200
        assert peer.upgrade("/stomp").status == 101


def test_long_messages_pass_in_both_directions(serve: Serve, certificate: Certificate) -> None:
    """In many records of TLS."""
    served = serve(*TLS, *certificate.options)
    body = bytes(range(256)) * 20_000
    with Raw(served.stomp, certificate) as peer:
        peer.send(CONNECT + b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0").until(b"\0")
        peer.send(b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % len(body) + body + b"\0").until(b"\n\n")
        assert peer.file.read(len(body)) == body


def test_who_speaks_no_tls_gets_nowhere(serve: Serve, certificate: Certificate) -> None:
    """Nor who breaks the handshake off; others come in meanwhile, and the log tells on request only."""
    served = serve(*TLS, *certificate.options, "--log-level", "info", expected="a TLS handshake failed")
    with Raw(served.native) as plain, Raw(served.stomp) as silent, Raw(served.stomp, certificate) as peer:
        assert b"HTTP" not in plain.send(b"GET /healthz HTTP/1.0\r\n\r\n").rest()
        silent.close()
        peer.send(CONNECT).until(b"\0")


def test_handshakes_that_stay_halves_have_their_limit(serve: Serve, certificate: Certificate) -> None:
    """They count as connections, and have the seconds that strangers have."""
    limits = ("--limit", "connections_max=2", "--limit", "first_bytes_seconds=2s")
    served = serve(*TLS, *certificate.options, *limits)
    halves = [socket.create_connection(served.stomp) for _ in range(2)]
    with Raw(served.stomp) as crowded:
        assert crowded.rest() == b""
        assert select.select(halves, [], [], 0)[0] == []
    for half in halves:
        half.settimeout(30)
        assert half.recv(1) == b""
        half.close()
    with when_there_is_room(lambda: Raw(served.stomp, certificate)) as peer:
        peer.send(CONNECT).until(b"\0")


def test_without_files_nobody_is_accepted_until_there_are_some(serve: Serve, certificate: Certificate) -> None:
    """Who waits is let in then; meanwhile the log tells of it once a second, rather than as fast as it can be written."""
    require(hasattr(resource, "prlimit"), "this system does not limit the files of another process")
    served = serve(*TLS, *certificate.options, expected="nobody can be accepted for now: Too many open files")
    limits = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    with ThreadPoolExecutor(1) as thread:
        entering = thread.submit(Raw, served.stomp, certificate)
        while not served.errors.stat().st_size:
            assert not entering.done()
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
        with entering.result() as peer:
            peer.send(CONNECT).until(b"\0")
    assert served.errors.read_text().count("nobody") < 10


def test_old_versions_of_tls_are_not_spoken(serve: Serve, certificate: Certificate) -> None:
    """1.2 is the oldest."""
    served = serve(*TLS, *certificate.options)
    context = ssl.create_default_context(cafile=certificate.certificate)
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # it would not even try
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(served.stomp) as plain, pytest.raises(ssl.SSLError, match=r"EOF|ALERT"):
        context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize(
    ("certificate_text", "key_text", "fault"),
    [
        (None, "", "--tls-cert: .* cannot be read: No such file"),
        ("", None, "--tls-key: .* cannot be read: No such file"),
        ("nonsense", "nonsense", "do not make a certificate with its key"),
    ],
)
def test_files_that_are_no_certificate_are_told(
    tmp_path: Path, certificate_text: str | None, key_text: str | None, fault: str
) -> None:
    """Before anything has begun."""
    for name, text in (("cert", certificate_text), ("key", key_text)):
        if text is not None:
            (tmp_path / name).write_text(text)
    with pytest.raises(BadRequest, match=fault):
        tls_context(tmp_path / "cert", tmp_path / "key")


def test_a_key_of_another_certificate_is_told(tmp_path: Path, certificate: Certificate) -> None:
    """As TLS calls it."""
    other = made_certificate(tmp_path)
    with pytest.raises(BadRequest, match="KEY_VALUES_MISMATCH"):
        tls_context(certificate.certificate, other.key)


def test_nobody_is_asked_for_the_secret_of_a_key(tmp_path: Path, certificate: Certificate) -> None:
    """Where a server starts there may be nobody to answer."""
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", str(certificate.key), "-out", str(locked), "-aes256", "-passout", "pass:secret"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with pytest.raises(BadRequest, match="do not make a certificate with its key"):
        tls_context(certificate.certificate, locked)
