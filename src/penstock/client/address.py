"""Where a client connects to, and as whom: `penstock://user:secret@host:8080,other:8080`."""

import ssl
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.model.errors import BadRequest

PORT_DEFAULT = 8080
#: Whether each is spoken by TLS; `penstock serve` prints its general door as http or https.
_SCHEMES = {"penstock": False, "penstocks": True, "http": False, "https": True}


@dataclass(slots=True, frozen=True)
class Target:
    """One broker under one or more addresses, tried in turn."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    secret: str = ""
    tls: ssl.SSLContext | None = None


def target_of(url: object, tls: ssl.SSLContext | None = None) -> Target:
    """Return what a URL names; `penstocks:` and `https:` stand for TLS, with a context of one's own if it is given."""
    if not isinstance(url, str):
        raise BadRequest(f"url must be a text, not {url!r}", key="url")
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in _SCHEMES:
        raise BadRequest(
            "url must begin with penstock:// or penstocks://, such as penstock://127.0.0.1:8080", key="url"
        )
    login, at, places = rest.rstrip("/").rpartition("@")
    user, _, secret = login.partition(":")
    context = tls or (ssl.create_default_context() if _SCHEMES[scheme] else None)
    hosts = tuple(_host_of(place) for place in places.split(","))
    return Target(hosts, unquote(user) if at else None, unquote(secret), context)


def _host_of(place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise BadRequest(f"url names the place {place!r}; it must be HOST or HOST:PORT", key="url")
    return host, int(port)
