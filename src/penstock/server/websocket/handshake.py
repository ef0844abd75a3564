"""The handshake of a WebSocket: whether a request may become one, and what answers it."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.errors import BadRequest
from penstock.server.websocket.deflate import agreed

_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # by RFC 6455, section 1.3
VERSION = "13"


@dataclass(slots=True, frozen=True)
class Accepted:
    """A handshake that succeeds."""

    headers: list[tuple[str, str]]
    #: Of what is packed; 0 without compression.
    window_bits: int


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Tell whether a request wants to become a WebSocket."""
    return headers.get("upgrade", "").lower() == "websocket"


def accepted(headers: Mapping[str, str], subprotocols: tuple[str, ...]) -> Accepted:
    """Answer a handshake; of the subprotocols, best first, the first that the peer offers is chosen, if any."""
    if "upgrade" not in headers.get("connection", "").lower():
        raise BadRequest("a WebSocket begins with the header `Connection: Upgrade`", key="connection")
    key = headers.get("sec-websocket-key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise BadRequest("Sec-WebSocket-Key has to be 16 bytes in base64", key="sec-websocket-key")
    digest = hashlib.sha1(f"{key}{_SUFFIX}".encode(), usedforsecurity=False).digest()
    answer = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", base64.b64encode(digest).decode()),
    ]
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((name for name in subprotocols if name in offered), None)
    if chosen is not None:
        answer.append(("Sec-WebSocket-Protocol", chosen))
    window_bits, extension = agreed(headers.get("sec-websocket-extensions", ""))
    if extension:
        answer.append(("Sec-WebSocket-Extensions", extension))
    return Accepted(answer, window_bits)
