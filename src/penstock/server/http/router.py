"""The table of requests: which handler answers which method and path."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import unquote

from penstock.model.errors import BadRequest, NoObject, PenstockError
from penstock.server.http.messages import Request, Response, error_response

Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


class MethodNotAllowed(PenstockError):
    """The path is there, for other methods; `data` has them."""

    code = "BadRequest"


@dataclass(slots=True, frozen=True)
class Route:
    """A row of the table."""

    method: str
    #: Parts of the path; `{name}` takes one part, and `{name*}` at the end all that are left.
    parts: tuple[str, ...]
    handler: Handler
    #: Whether strangers are answered too.
    is_open: bool

    def match(self, parts: list[str]) -> dict[str, str] | None:
        """Return what the names in the pattern stand for, None if it is another path."""
        found: dict[str, str] = {}
        for at, pattern in enumerate(self.parts):
            if pattern.endswith("*}"):
                found[pattern[1:-2]] = "/".join(parts[at:])
                return found if parts[at:] else None
            if at >= len(parts):
                return None
            if pattern.startswith("{"):
                found[pattern[1:-1]] = parts[at]
            elif pattern != parts[at]:
                return None
        return found if len(parts) == len(self.parts) else None


class Router:
    """See the module."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def add(self, method: str, path: str, handler: Handler, *, is_open: bool = False) -> None:
        """Have requests answered by a handler; a GET answers HEAD too."""
        self._routes.append(Route(method, tuple(path.removeprefix("/").split("/")), handler, is_open))

    def find(self, request: Request) -> Route:
        """Return the route of a request, and give the request the parameters in its path."""
        parts = split_path(request.path)
        method = "GET" if request.method == "HEAD" else request.method
        others = []
        for route in self._routes:
            parameters = route.match(parts)
            if parameters is None:
                continue
            if route.method == method:
                request.parameters = parameters
                return route
            others.append(route.method)
        if others:
            methods = sorted({*others, *(["HEAD"] if "GET" in others else [])})
            text = f"{request.method} is not possible here, but {', '.join(methods)}"
            raise MethodNotAllowed(text, key="method", methods=methods)
        raise NoObject(f"there is nothing at {request.path[:200]}", key="path")


def split_path(path: str) -> list[str]:
    """Return the parts of a path, each unquoted by itself."""
    try:
        return [unquote(part, errors="strict") for part in path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise BadRequest("the path is not valid UTF-8", key="path") from None


def refusal(error: PenstockError) -> Response:
    """Answer a request that no handler can answer, or that its handler refuses."""
    if isinstance(error, MethodNotAllowed):
        response = error_response(error, HTTPStatus.METHOD_NOT_ALLOWED)
        response.headers.append(("Allow", ", ".join(error.data["methods"])))
        return response
    response = error_response(error)
    if error.key == "login" and error.code == "PermissionDenied":
        response.status = HTTPStatus.UNAUTHORIZED
        response.headers.append(("WWW-Authenticate", 'Basic realm="penstock", charset="UTF-8"'))
    return response
