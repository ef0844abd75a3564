"""The code of proto/ is what the script makes of it, and every message and field is documented."""

import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.v1 import broker_pb2
from tests.conftest import require

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto" / "penstock" / "v1" / "broker.proto"
CODE = Path(broker_pb2.__file__).parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the code, made anew."""
    require((ROOT / "scripts" / "generate-grpc").exists(), "this is an installed copy")
    require(find_spec("grpc_tools"), "grpcio-tools is not installed")
    place = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, ROOT / "scripts" / "generate-grpc", place], check=True)
    return place / "penstock" / "v1"


@pytest.mark.parametrize("name", ["broker_pb2.py", "broker_pb2.pyi", "broker_pb2_grpc.py", "broker_pb2_grpc.pyi"])
def test_the_code_is_current(made: Path, name: str) -> None:
    """Else run scripts/generate-grpc."""
    assert (made / name).read_text() == (CODE / name).read_text()


def test_everything_is_documented() -> None:
    """Every message, field, call and value has a comment right above it."""
    require(PROTO.exists(), "this is an installed copy")
    lines = [line.strip() for line in PROTO.read_text().splitlines()]
    named = re.compile(r"(message|enum|rpc|oneof|service) \w+|.* = \d+;")
    found = [line for before, line in pairwise(lines) if named.match(line) and before[:2] != "//"]
    assert found == []
