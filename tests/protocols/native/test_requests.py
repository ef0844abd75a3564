"""Every request with each of its fields missing, of a wrong type, and out of range; and what is no request at all."""

import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import pytest

from penstock.model.access import Access
from penstock.model.errors import PermissionDenied
from penstock.protocols.native.json import wire_of
from penstock.protocols.native.messages import REQUESTS, Request
from tests.protocols.native.peers import World

#: Of each request one that is right, as far as a stranger to this broker can say.
RIGHT: dict[str, dict[str, Any]] = {
    "create": {"queue": "a"},
    "alter": {"queue": "a"},
    "delete": {"queue": "a"},
    "purge": {"queue": "a"},
    "post": {"queue": "a", "message": "x"},
    "pop": {"queue": "a"},
    "fetch": {"queue": "a"},
    "finish": {"sequence": 1},
    "fail": {"sequence": 1},
    "release": {"sequence": 1},
    "reject": {"sequence": 1},
    "keepalive": {},
    "subscribe": {"queue": "a"},
    "unsubscribe": {},
    "batch": {"requests": []},
    "status": {"queue": "a"},
    "ping": {},
    "login": {"user": "guest", "secret": ""},
    "resume": {},
}
REQUIRED = {
    "purge": ["queue"],
    "post": ["message"],
    "pop": ["queue"],
    "fetch": ["queue"],
    "finish": ["sequence"],
    "fail": ["sequence"],
    "release": ["sequence"],
    "reject": ["sequence"],
    "batch": ["requests"],
    "login": ["user", "secret"],
}
#: Of each type values that are not of it; what goes over the wire as it stands.
WRONG: dict[str, list[object]] = {
    "u32": [-1, 2**32, 1.5, "1", True, [], 10**400],
    "u64": [-1, 2**64, 1.5, "1", False, {}, 10**400],
    "f64": [-1, -0.5, 1e300, "1", True, []],
    "bool": [0, 1, "true", []],
    "String": [5, 1.5, True, [], {}],
    "Vec<u8>": [5, None, [256], [-1], ["1"], [1.5], {}, True],
    "Vec<String>": ["a", [1], {}, 5, [[]], [None]],
    "BTreeMap<String, String>": [[], "a", {"a": 1}, {"a": None}, 5],
    "BTreeMap<String, Value>": [[], "a", 5],
    "Level": ["later", 1, [], "READY"],
    "Match": ["all", 1, [], ""],
    "Vec<Stage>": ["ready", ["later"], [1], {}, [None]],
    "Vec<Request>": [{}, 5, [5], [{}], [{"type": "pop", "queue": "a"}], [None], [[]]],
}


def fields_of(kind: type[Request]) -> Iterator[tuple[str, str]]:
    """Yield each field of a request, with the name of its type."""
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        yield name, wire_of(hints[name]).rust


CASES = [
    (kind.__struct_config__.tag, name, value)
    for kind in REQUESTS
    for name, rust in fields_of(kind)
    for value in WRONG[rust]
]


async def answer_to(world: World, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, after which the connection must go on."""
    peer = world.native()
    world.set_queue("a")
    peer.tell_raw(json.dumps(request).encode())
    await world.quiet()
    answer = peer.only()
    assert await peer.ask("ping", label=9) == {"type": "pong", "label": 9}
    assert peer.is_open
    return answer


@pytest.mark.parametrize(("request_name", "field", "value"), CASES, ids=lambda value: repr(value)[:24])
async def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    world: World, request_name: str, field: str, value: object
) -> None:
    """The error is `BadRequest`, its key the field, its label that of the request; the connection stays open."""
    request = {"type": request_name, "label": 5, **RIGHT[request_name], field: value}
    answer = await answer_to(world, request)
    assert (answer["type"], answer["code"]) == ("error", "BadRequest"), answer
    assert answer["key"].partition("[")[0].partition(".")[0] == field, answer
    assert answer.get("label") == (None if field == "label" else 5)


@pytest.mark.parametrize(
    ("request_name", "field"), [(name, field) for name, fields in REQUIRED.items() for field in fields]
)
async def test_a_missing_field_is_named(world: World, request_name: str, field: str) -> None:
    """Whoever leaves a field out is told which one."""
    request = {"type": request_name, "label": 5, **RIGHT[request_name]}
    del request[field]
    answer = await answer_to(world, request)
    assert (answer["code"], answer["key"], answer["label"]) == ("BadRequest", field, 5)
    assert answer["text"] == f"{field} is missing"


def test_the_required_fields_are_known() -> None:
    """No request has a required field that is not tested here."""
    found = {
        str(kind.__struct_config__.tag): [field.name for field in msgspec.structs.fields(kind) if field.required]
        for kind in REQUESTS
    }
    assert {name: fields for name, fields in found.items() if fields} == REQUIRED


#: Values of the right type that mean nothing, or too much: the request, the code and the key.
SENSELESS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "create"}, "BadRequest", "queue"),
    ({"type": "create", "queue": ""}, "BadRequest", "queue"),
    ({"type": "create", "queue": "x" * 256}, "BadRequest", "queue"),
    ({"type": "create", "queue": "a\nb"}, "BadRequest", "queue"),
    ({"type": "create", "queue": "a", "topic": "t"}, "BadRequest", "topic"),
    ({"type": "create", "topic": "t", "tags": ["eu"]}, "BadRequest", "tags"),
    ({"type": "create", "queue": "b", "tags": ["a,b"]}, "BadRequest", "tags"),
    ({"type": "create", "queue": "b", "tags": [str(number) for number in range(65)]}, "BadRequest", "tags"),
    ({"type": "create", "queue": "b", "settings": {"size": 1}}, "BadRequest", "size"),
    ({"type": "create", "queue": "b", "settings": {"retry_limit": 0}}, "BadRequest", "retry_limit"),
    ({"type": "create", "queue": "a", "exclusive": True}, "ObjectAlreadyExists", "queue"),
    ({"type": "alter", "queue": "a", "settings": {"paused": 1}}, "BadRequest", "paused"),
    ({"type": "alter", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "alter", "topic": "missing"}, "NoObject", "topic"),
    ({"type": "delete"}, "BadRequest", "queue"),
    ({"type": "delete", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "delete", "topic": "missing"}, "NoObject", "topic"),
    ({"type": "purge", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "post", "message": "x"}, "BadRequest", "queue"),
    ({"type": "post", "queue": "", "message": "x"}, "BadRequest", "queue"),
    ({"type": "post", "queue": "a", "topic": "t", "message": "x"}, "BadRequest", "topic"),
    ({"type": "post", "topic": "t", "tags": ["eu"], "message": "x"}, "BadRequest", "tags"),
    ({"type": "post", "topic": "t", "key": "k", "message": "x"}, "BadRequest", "key"),
    ({"type": "post", "topic": "t", "group": "g", "message": "x"}, "BadRequest", "group"),
    ({"type": "post", "queue": "a", "message": "x", "ttl": 0}, "BadRequest", "ttl"),
    ({"type": "post", "queue": "a", "message": "x", "key": ""}, "BadRequest", "key"),
    ({"type": "post", "queue": "a", "message": "x", "group": "g\0"}, "BadRequest", "group"),
    ({"type": "post", "queue": "a", "message": "x", "dedup_id": ""}, "BadRequest", "dedup_id"),
    ({"type": "post", "queue": "a", "message": "x", "headers": {"h": "x" * 2**17}}, "TooLarge", "headers"),
    ({"type": "post", "queue": "a", "message": "x", "headers": dict.fromkeys(map(str, range(257)), "")}, "TooLarge",
     "headers"),
    ({"type": "pop", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "pop", "queue": "missing", "timeout": 5}, "NoObject", "queue"),
    ({"type": "pop", "queue": "a", "tags": ["missing"]}, "NoObject", "queue"),
    ({"type": "pop", "queue": "a", "tags": ["a,b"]}, "BadRequest", "tags"),
    ({"type": "pop", "queue": "a", "selector": "colour ="}, "BadRequest", "selector"),
    ({"type": "fetch", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "fetch", "queue": "a", "work_timeout": 0}, "BadRequest", "work_timeout"),
    ({"type": "finish", "sequence": 1}, "NoObject", "sequence"),
    ({"type": "finish", "sequence": 1, "queue": "a"}, "NoObject", "sequence"),
    ({"type": "finish", "sequence": 1, "queue": "missing"}, "NoObject", "sequence"),
    ({"type": "finish", "sequence": 1, "shard": 1}, "NoObject", "shard"),
    ({"type": "fail", "sequence": 2**64 - 1}, "NoObject", "sequence"),
    ({"type": "keepalive", "sequence": 1}, "NoObject", "sequence"),
    ({"type": "subscribe"}, "BadRequest", "queue"),
    ({"type": "subscribe", "queue": "a", "topic": "t"}, "BadRequest", "topic"),
    ({"type": "subscribe", "queue": "a", "credit": 0}, "BadRequest", "credit"),
    ({"type": "subscribe", "queue": "a", "credit": 65536}, "BadRequest", "credit"),
    ({"type": "subscribe", "queue": "a", "durable": "d"}, "BadRequest", "durable"),
    ({"type": "subscribe", "queue": "a", "from_seq": 1}, "BadRequest", "from_seq"),
    ({"type": "subscribe", "topic": "t", "tags": []}, "BadRequest", "tags"),
    ({"type": "subscribe", "topic": "t", "durable": ""}, "BadRequest", "durable"),
    ({"type": "subscribe", "topic": "t.#.x"}, "BadRequest", "topic"),
    ({"type": "subscribe", "topic": "t", "work_timeout": 0}, "BadRequest", "work_timeout"),
    ({"type": "subscribe", "queue": "a", "selector": "("}, "BadRequest", "selector"),
    ({"type": "unsubscribe"}, "NoObject", "subscription"),
    ({"type": "unsubscribe", "subscription": 3}, "NoObject", "subscription"),
    ({"type": "unsubscribe", "topic": "t"}, "BadRequest", "durable"),
    ({"type": "unsubscribe", "durable": "d"}, "NoObject", "durable"),
    ({"type": "unsubscribe", "topic": "t", "durable": "d"}, "NoObject", "durable"),
    ({"type": "batch", "requests": [{"type": "finish", "sequence": 1}]}, "NoObject", "requests[0].sequence"),
    ({"type": "batch", "requests": [{"type": "post", "message": "x"}]}, "BadRequest", "requests[0].queue"),
    ({"type": "status"}, "BadRequest", "queue"),
    ({"type": "status", "queue": "missing"}, "NoObject", "queue"),
    ({"type": "status", "topic": "missing"}, "NoObject", "topic"),
    ({"type": "login", "user": "bob", "secret": "x"}, "PermissionDenied", "login"),
    ({"type": "resume", "id": "no hex"}, "BadRequest", "id"),
    ({"type": "resume", "id": "00" * 16}, "NoObject", "id"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "code", "key"), SENSELESS, ids=lambda value: str(value)[:60])
async def test_what_makes_no_sense_is_refused(world: World, request_: dict[str, Any], code: str, key: str) -> None:
    """A request may be well-formed and still ask for something that cannot be."""
    world.access = lambda user: Access.to_all(user) if user == "guest" else PermissionDenied("no", key="login")
    answer = await answer_to(world, {**request_, "label": 2**64 - 1})
    assert (answer["type"], answer["code"], answer["key"]) == ("error", code, key), answer
    assert answer["label"] == 2**64 - 1
    assert answer["text"]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b"hello", "json"),
        (b"[]", "json"),
        (b"5", "json"),
        (b"null", "json"),
        (b'{"type":"ping"', "json"),
        (b'{"type":"ping"} {}', "json"),
        (b'{"type":"ping","label":1e}', "json"),
        (b'{"type":"pop","queue":"a","timeout":1e999}', "json"),
        (b'{"type":"pop","queue":"a","timeout":NaN}', "json"),
        (b"{}", "type"),
        (b'{"type":"shout"}', "type"),
        (b'{"type":5}', "type"),
        (b'{"type":null}', "type"),
        (b'{"type":"post","queue":5,"type":[]}', "queue"),
        (b'{"type":"post","queue":"a","message":"\xff"}', "json"),
        (b'{"type":"post","queue":"\\ud800","message":"x"}', "json"),
        (b"[" * 100_000, "json"),
        (b'{"type":"create","queue":"a","settings":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "json"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_request_is_answered_and_the_next_line_goes_on(world: World, line: bytes, key: str) -> None:
    """A person who mistypes a line in `nc` types the next one."""
    peer = world.native()
    peer.session.receive(line + b"\n" + b'{"type":"ping","label":1}\n')
    await world.quiet()
    error, pong = peer.take_all()
    assert (error["type"], error["code"], error["key"]) == ("error", "BadRequest", key)
    assert pong == {"type": "pong", "label": 1}


async def test_unknown_fields_are_passed_over(world: World) -> None:
    """A client may be newer than the broker."""
    peer = world.native()
    assert (await peer.ask("ping", label=1, colour="red"))["type"] == "pong"


async def test_lines_may_come_in_any_pieces(world: World) -> None:
    """Bytes one by one, white space and empty lines between them, and line ends as terminals send them."""
    peer = world.native()
    for byte in b'  \r\n\n{"type":"ping","label":1}\r\n\t{"type" : "ping", "label" : 2 }\n':
        peer.session.receive(bytes([byte]))
    assert [answer["label"] for answer in peer.take_all()] == [1, 2]


async def test_an_endless_line_ends_the_connection(world: World) -> None:
    """It is given up as soon as it is too long, with an error that says how long one may be."""
    peer = world.native()
    limit = 4 * world.runtime.engine.limits.body_bytes_max + 4 * 2**20
    chunk = b"x" * 2**20
    for _ in range(limit // len(chunk)):
        peer.session.receive(chunk)
    assert peer.is_open
    peer.session.receive(b"x")
    last = peer.last_words()
    assert (last["code"], last["key"]) == ("TooLarge", "request")


async def test_a_body_may_be_as_long_as_the_limit_and_no_longer(world: World) -> None:
    """The limit is the same for a text and for numbers."""
    peer = world.native()
    limit = world.runtime.engine.limits.body_bytes_max
    assert (await peer.ask("post", queue="a", message="x" * limit, label=1))["type"] == "ok"
    assert await peer.refused("post", queue="a", message="x" * (limit + 1)) == ("TooLarge", "message")
    assert (await peer.ask("pop", queue="a"))["body"] == "x" * limit
