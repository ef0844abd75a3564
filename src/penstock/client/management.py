"""Asking the management interface of a broker over HTTP, for programs and for the command line."""

import base64
import http.client
import json
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.client.address import Target
from penstock.client.errors import error_by_code
from penstock.model.errors import Unavailable

_SECONDS = 30.0
#: What the error of a broker is about that stands by.
STANDBY = "standby"

Result = TypeVar("Result")


def got(target: Target, path: str) -> dict[str, Any]:
    """Return what a broker answers over HTTP at a path; the first that answers of those that are named."""
    return taken(target, path, lambda answer, place: _object_in(answer.read(), place))


def taken(target: Target, path: str, take: Callable[[http.client.HTTPResponse, str], Result]) -> Result:
    """Return what `take` makes of the answer at a path, which it may read piece by piece, and of who gave it.

    A broker that stands by is passed over, as one that does not answer.
    """
    failure: Exception | None = None
    standing_by: Unavailable | None = None
    for host, port in target.hosts:
        connection = _connection(target, host, port)
        try:
            return take(_answer(target, connection, path), f"{host}:{port}")
        except (OSError, http.client.HTTPException) as error:
            failure = error
        except Unavailable as error:
            if error.key != STANDBY:
                raise
            standing_by = error
        finally:
            connection.close()
    raise standing_by or Unavailable(f"no broker answers: {failure}", key="url")


def _connection(target: Target, host: str, port: int) -> http.client.HTTPConnection:
    if target.tls is None:
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)
    return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=target.tls)


def _answer(target: Target, connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    """Return the answer, unless it is a refusal."""
    headers = {}
    if target.user is not None:
        login = base64.b64encode(f"{target.user}:{target.secret}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    if response.status >= http.client.BAD_REQUEST:
        content = _object_in(response.read(), f"{connection.host}:{connection.port}")
        code, text = str(content.get("error", "Unavailable")), str(content.get("message", response.reason))
        raise error_by_code(code, text, content.get("key"))
    return response


def _object_in(data: bytes, place: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Unavailable(f"what answers at {place} is no broker", key="url")
    return content
