"""A broker behind its doors for the tests of each module, and certificates."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import require
from tests.served import FREE_PORTS, Served
from tests.server.raw import Certificate

MEMORY = (*FREE_PORTS, "--store", "memory")

Serve: TypeAlias = Callable[..., Served]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker for all tests of a module that want nothing special."""
    with Served(tmp_path_factory.mktemp("served"), *MEMORY) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a broker with options of the test's own; it is stopped in good order at the end."""
    with ExitStack() as stack:
        yield lambda *options, expected=None: stack.enter_context(
            Served(tmp_path, *(() if "--listen" in options else MEMORY), *options, expected=expected)
        )


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Return a certificate for localhost and 127.0.0.1, signed by itself."""
    require(shutil.which("openssl"), "openssl is not installed")
    return made_certificate(tmp_path_factory.mktemp("tls"))


def made_certificate(directory: Path) -> Certificate:
    """Make a certificate and its key."""
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate), "-days", "30"]
    subprocess.run([*command, *names, *files], check=True, stderr=subprocess.DEVNULL)
    return made
