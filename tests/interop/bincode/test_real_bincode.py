"""Penstock's bincode is that of the Rust crate: the same bytes for the same values, and the same bytes refused."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.protocols.native import bincode, often
from penstock.protocols.native.json import Refused
from penstock.protocols.native.messages import Answer, Request
from tests.conftest import require
from tests.interop.bincode.rust import literal, schema
from tests.interop.bincode.values import ANSWERS, REQUESTS
from tests.protocols.native.vocabulary import answers, requests

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.txt"
#: Any machine compiles this far sooner.
COMPILE_SECONDS = 300
Program = Callable[..., list[str]]


def golden() -> dict[str, bytes]:
    """Return the bytes that are known, by the kind and name of the value."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: bytes.fromhex(digits) for name, digits in pairs}


def named() -> dict[str, Request | Answer]:
    """Return all values, by kind and name."""
    return {
        **{f"request {name}": value for name, value in REQUESTS.items()},
        **{f"answer {name}": value for name, value in ANSWERS.items()},
    }


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Program:
    """Return what runs the program in Rust; it is compiled when it has changed."""
    require(shutil.which("cargo"), "there is no cargo")
    require(Path("/usr/share/doc/librust-bincode-dev").exists(), "Debian's librust-bincode-dev is not installed")
    cache = pytestconfig.cache
    assert cache is not None
    tree = cache.mkdir("bincode")
    shutil.copytree(HERE, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    lines = [f'    println!("{name} {{}}", hex(&{literal(value)}));' for name, value in named().items()]
    text = "use crate::hex;\nuse crate::schema::*;\n\npub fn print() {\n" + "\n".join(lines) + "\n}\n"
    (tree / "src" / "golden.rs").write_text(text, encoding="utf-8")
    subprocess.run(["cargo", "build", "--quiet", "--offline"], cwd=tree, check=True, timeout=COMPILE_SECONDS)

    def run(*arguments: str, given: str = "") -> list[str]:
        command = [str(tree / "target" / "debug" / "penstock-bincode"), *arguments]
        environment = {**os.environ, "RUST_BACKTRACE": "0"}
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, check=True, timeout=60, env=environment
        )
        return done.stdout.splitlines()

    return run


def test_the_schema_is_that_of_the_vocabulary() -> None:
    """The types in Rust that clients copy are those that the broker reads and writes."""
    assert (HERE / "src" / "schema.rs").read_text(encoding="utf-8") == schema()


def test_there_are_values_of_every_kind() -> None:
    """Nothing in the vocabulary goes unchecked."""
    assert {type(value) for value in named().values()} == {*bincode.REQUESTS, *bincode.ANSWERS}
    assert golden().keys() == named().keys()


@pytest.mark.parametrize("name", named())
def test_a_value_has_the_bytes_that_are_known(name: str) -> None:
    """Written and read, without Rust at hand."""
    value, data = named()[name], golden()[name]
    assert bincode.written(value).hex() == data.hex()
    read = often.read_request(data, 0, len(data)) if isinstance(value, Request) else bincode.read_answer(data)
    assert bincode.written(read) == data  # type: ignore[arg-type]  # a refusal fails here
    assert type(read) is type(value)


@pytest.mark.slow
def test_the_bytes_that_are_known_are_those_of_rust(program: Program) -> None:
    """The crate writes every value alike, field by name."""
    assert program("golden") == [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line[0] != "#"]


def echoed(program: Program, values: list[Request | Answer], data: list[bytes]) -> list[str]:
    """Return what the crate makes of bytes that are to be read as such values."""
    kinds = ["request" if isinstance(value, Request) else "answer" for value in values]
    given = "".join(f"{kind} {one.hex()}\n" for kind, one in zip(kinds, data, strict=True))
    return program("echo", given=given)


def drawn(count: int) -> list[Request | Answer]:
    """Return so many values of all kinds, always the same ones."""
    found: list[Request | Answer] = []

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(requests() | answers())
    def draw(one: Request | Answer) -> None:
        found.append(one)

    draw()
    return found


@pytest.mark.slow
def test_whatever_is_written_is_read_by_rust(program: Program) -> None:
    """Values of all kinds, and what the crate has read it writes alike."""
    values = drawn(500)
    data = [bincode.written(value) for value in values]
    assert echoed(program, values, data) == [one.hex() for one in data]


@pytest.mark.slow
def test_what_rust_refuses_is_refused_and_what_is_taken_means_the_same(program: Program) -> None:
    """Damaged bytes: nothing is taken here that the crate cannot read, and what is taken is read alike."""
    values, chance = drawn(500), random.Random(5)
    data = [damaged(bincode.written(value), chance) for value in values]
    taken = 0
    for value, one, rust in zip(values, data, echoed(program, values, data), strict=True):
        again = again_of(value, one)
        if again is not None:
            taken += 1
            assert again == rust, one.hex()
    assert 50 < taken < 450, "both happen"


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with one changed, left out or doubled, or the end cut off."""
    at = chance.randrange(len(data))
    return chance.choice(
        [
            data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
            data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
            data[:at] + data[at + 1 :],
            data[:at] + data[at : at + 1] + data[at:],
            data[:at],
        ]
    )


def again_of(value: Request | Answer, data: bytes) -> str | None:
    """Return what is written of what was read, in hexadecimal; None if it is refused."""
    if isinstance(value, Request):
        read = often.read_request(data, 0, len(data))
        return None if isinstance(read, Refused) else bincode.written(read).hex()
    try:
        return bincode.written(bincode.read_answer(data)).hex()
    except bincode.BadRequest:
        return None
