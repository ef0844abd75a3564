"""Frames of bincode that are wrong: cut off at each field, with values that no field can have, over real sessions."""

from typing import Any

import pytest

from penstock.protocols.native import bincode
from penstock.protocols.native.messages import REQUESTS, Request
from tests.interop.bincode.values import REQUESTS as VALUES
from tests.protocols.native.peers import World

WHOLE = {type(value): value for name, value in VALUES.items() if name.endswith(", all")}
CUTS = [(kind, name) for kind in REQUESTS for name in kind.__struct_fields__]


def written_before(request: Request, field: str) -> bytes:
    """Return the bytes of a request up to a field."""
    layout = bincode._REQUEST_LAYOUTS[type(request)]
    out = [layout.head]
    for name, codec in layout.codecs:
        if name == field:
            break
        codec.write(getattr(request, name), out)
    return b"".join(out)


async def refusal_of(world: World, carrier: str, payload: bytes) -> dict[str, Any]:
    """Return the answer to a wrong frame, after which the connection must go on."""
    peer = world.native(carrier)
    peer.tell_raw(payload)
    await world.quiet()
    refusal = peer.only()
    assert (refusal["type"], refusal["code"]) == ("error", "BadRequest"), refusal
    assert await peer.ask("ping", label=9) == {"type": "pong", "label": 9}
    return refusal


@pytest.mark.parametrize("carrier", ["frames", "binary"])
@pytest.mark.parametrize(("kind", "field"), CUTS, ids=lambda value: str(getattr(value, "__name__", value)))
async def test_a_request_that_ends_too_soon_is_refused_by_the_field_that_is_missing(
    world: World, carrier: str, kind: type[Request], field: str
) -> None:
    """Whatever comes before it."""
    refusal = await refusal_of(world, carrier, written_before(WHOLE[kind], field))
    assert refusal["key"] == field


#: What stands where a field begins, by the name of its type.
NONSENSE = {
    "an option of neither kind": ("ping", "label", b"\x02"),
    "a truth value of neither kind": ("create", "exclusive", b"\x02"),
    "a text that is no UTF-8": ("login", "user", b"\x01" + bytes(7) + b"\xff"),
    "a stage that there is not": ("post", "notify", b"\x01" + bytes(7) + b"\x07\0\0\0"),
    "a level that there is not": ("fetch", "sync", b"\x03\0\0\0"),
    "a match that there is not": ("pop", "match", b"\x04\0\0\0"),
    "seconds before now": ("pop", "timeout", b"\0\0\0\0\0\0\xf0\xbf"),
    "seconds that are no number": ("pop", "timeout", b"\0\0\0\0\0\0\xf8\x7f"),
    "seconds without end": ("pop", "timeout", b"\0\0\0\0\0\0\xf0\x7f"),
    "a value that there is not": ("create", "settings", b"\x01" + bytes(7) + bytes(8) + b"\x07\0\0\0"),
    "a request that there is not": ("batch", "requests", b"\x01" + bytes(7) + b"\x13\0\0\0"),
    "a request that may not stand there": ("batch", "requests", b"\x01" + bytes(7) + b"\x10\0\0\0\0"),
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_field(world: World, name: str) -> None:
    """With a sentence that says what it is."""
    request, field, wrong = NONSENSE[name]
    value = VALUES[f"{request}, all"]
    refusal = await refusal_of(world, "frames", written_before(value, field) + wrong + bytes(64))
    assert refusal["key"].partition(".")[0] == field
    assert field in refusal["text"]


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x13\0\0\0", b"\xff\xff\xff\xff"])
async def test_a_frame_without_a_kind_is_refused(world: World, payload: bytes) -> None:
    """An empty one, too."""
    assert (await refusal_of(world, "frames", payload))["key"] == "type"
