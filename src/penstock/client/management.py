"""Asking the management interface of a broker over HTTP, for programs and for the command line."""

import base64
import http.client
import json
from typing import Any

from penstock.client.address import Target
from penstock.client.errors import error_by_code
from penstock.model.errors import Unavailable

_SECONDS = 30.0


def got(target: Target, path: str) -> dict[str, Any]:
    """Return what a broker answers over HTTP at a path; the first that answers of those that are named."""
    failure: Exception | None = None
    for host, port in target.hosts:
        try:
            return _got_from(target, host, port, path)
        except (OSError, http.client.HTTPException) as error:
            failure = error
    raise Unavailable(f"no broker answers: {failure}", key="url")


def _got_from(target: Target, host: str, port: int, path: str) -> dict[str, Any]:
    connection = (
        http.client.HTTPConnection(host, port, timeout=_SECONDS)
        if target.tls is None
        else http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=target.tls)
    )
    headers = {}
    if target.user is not None:
        login = base64.b64encode(f"{target.user}:{target.secret}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        content = _object_in(response.read(), f"{host}:{port}")
    finally:
        connection.close()
    if response.status >= http.client.BAD_REQUEST:
        code, text = str(content.get("error", "Unavailable")), str(content.get("message", response.reason))
        raise error_by_code(code, text, content.get("key"))
    return content


def _object_in(data: bytes, place: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Unavailable(f"what answers at {place} is no broker", key="url")
    return content
