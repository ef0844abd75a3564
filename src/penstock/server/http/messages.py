"""Requests and responses of HTTP, as handlers see them."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.model.access import Access
from penstock.model.errors import BadRequest, PenstockError

#: The status of each error code; the codes are those of the native protocol.
STATUS_OF = {
    "BadRequest": HTTPStatus.BAD_REQUEST,
    "PermissionDenied": HTTPStatus.FORBIDDEN,
    "NoObject": HTTPStatus.NOT_FOUND,
    "ObjectAlreadyExists": HTTPStatus.CONFLICT,
    "NotAssigned": HTTPStatus.CONFLICT,
    "TooLarge": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "QueueFull": HTTPStatus.INSUFFICIENT_STORAGE,
    "Unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}
JSON = ("Content-Type", "application/json")

Headers = list[tuple[str, str]]


@dataclass(slots=True)
class Request:
    """A request that is there whole."""

    method: str
    path: str
    #: Each name with all of its values.
    query: Mapping[str, list[str]]
    #: By their names in lower case; of several with one name the values are joined by commas.
    headers: Mapping[str, str]
    body: bytes
    #: Who asks. Before the login it is somebody who may do nothing.
    access: Access = field(default_factory=lambda: Access("", {}))
    #: The parts of the path that the pattern of the route names.
    parameters: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str) -> str | None:
        """Return the value of an option in the query, None if it is not there."""
        values = self.query.get(name, [])
        if len(values) > 1:
            raise BadRequest(f"{name} stands {len(values)} times in the query; once is meant", key=name)
        return values[0] if values else None


@dataclass(slots=True)
class Response:
    """An answer. A body that is not in memory comes piece by piece, and is told its length where that is known."""

    status: int = HTTPStatus.OK
    headers: Headers = field(default_factory=list)
    body: bytes | AsyncGenerator[bytes, None] = b""
    length: int | None = None


def json_response(value: Any, status: int = HTTPStatus.OK) -> Response:
    """Answer with a value as JSON."""
    return Response(status, [JSON], msgspec.json.encode(value) + b"\n")


def error_response(error: PenstockError, status: int | None = None) -> Response:
    """Answer with an error as JSON."""
    content = {"error": error.code, "message": error.message}
    if error.key is not None:
        content["key"] = error.key
    return json_response(content, status or STATUS_OF.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR))
