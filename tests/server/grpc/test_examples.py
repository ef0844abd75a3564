"""The examples of gRPC do what they say."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import require
from tests.served import PATIENCE, Served

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def said(name: str, *arguments: str) -> str:
    """Return what an example prints."""
    require(EXAMPLES.exists(), "this is an installed copy")
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_worker_works(served: Served) -> None:
    """Everything that was published is settled."""
    lines = said("grpc_worker.py", served.grpc).splitlines()
    assert lines[0] == "published 10 orders, 0 were refused"
    assert [line for line in lines if line.startswith("working")] == [
        f"working on order {number}, attempt 1" for number in range(10)
    ]
    assert lines[-2:] == ["10 are settled, and that is on disk", "read hello"]


def test_what_the_page_shows_works(served: Served, tmp_path: Path) -> None:
    """Its example, copied into a file."""
    page = (EXAMPLES.parent / "docs" / "protocols" / "grpc.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(example.replace("127.0.0.1:50051", served.grpc), encoding="utf-8")
    assert said(str(tmp_path / "example.py")) == "b'two loaves'\n"


def test_a_broker_tells_by_reflection_what_it_speaks(served: Served) -> None:
    """All services with their calls; calls can be made by that alone."""
    lines = said("grpc_reflect.py", served.grpc).splitlines()
    services = ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "penstock.v1.Broker"]
    assert [line for line in lines if not line.startswith(" ")] == services
    assert "  Poll(PollRequest) -> PollResponse" in lines
    said("grpc_reflect.py", served.grpc, "Enqueue", '{"message": {"queue": "reflected", "body": "aGVsbG8="}}')
    answer = json.loads(said("grpc_reflect.py", served.grpc, "GetStatus", '{"queue": "reflected"}'))
    assert (answer["queue"]["queue"], answer["queue"]["ready"]) == ("reflected", "1")
    refusal = said("grpc_reflect.py", served.grpc, "GetStatus", '{"queue": "nothing"}')
    assert refusal == "NOT_FOUND: there is no queue nothing\n"
