"""Requests to a broker over HTTP, from Spark's driver and workers."""

import http.client
from base64 import b64encode
from contextlib import closing
from typing import Any, TypeVar

import msgspec

from penstock.client.address import Target, target_of
from penstock.client.errors import error_by_code
from penstock.model.errors import PenstockError, Unavailable

#: Longer than a broker on a busy disk needs for a sync; what takes longer is broken.
TIMEOUT_SECONDS = 60.0
#: What an error is about that another host may not have: it does not answer, or stands by.
_ASK_ANOTHER = frozenset({"url", "standby"})

Answer = TypeVar("Answer")


class BrokerClient:
    """Asks one broker; each request has a connection of its own, so that nothing is kept open between batches."""

    def __init__(self, url: str) -> None:
        self._target = _target(url)

    def ask(
        self, answer: type[Answer], method: str, path: str, content: object = None, timeout: float = TIMEOUT_SECONDS
    ) -> Answer:
        """Return an answer in JSON."""
        body = None if content is None else msgspec.json.encode(content)
        return msgspec.json.decode(self.send(method, path, body, timeout), type=answer)

    def send(self, method: str, path: str, body: bytes | None = None, timeout: float = TIMEOUT_SECONDS) -> bytes:
        """Return what is answered; an error that the broker tells is raised as the embedded broker would.

        Of several hosts the first one that serves is asked: others are away, or stand by.
        """
        reasons = []
        for host in self._target.hosts:
            try:
                return self._sent(host, timeout, method, f"/api/v1{path}", body, _headers(self._target))
            except Unavailable as error:
                if error.key not in _ASK_ANOTHER:
                    raise
                reasons.append(error.message)
        raise Unavailable("; ".join(reasons), key="url")

    def _sent(self, host: tuple[str, int], timeout: float, *request: Any) -> bytes:
        try:
            with closing(self._connection(host, timeout)) as connection:
                connection.request(*request)
                response = connection.getresponse()
                data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the broker at {host[0]}:{host[1]} cannot be reached: {error!r}. Is it running, and "
                "does the option `url` name its general port (http://HOST:8080)?",
                key="url",
            ) from None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise _refusal(response.status, data)
        return data

    def _connection(self, host: tuple[str, int], timeout: float) -> http.client.HTTPConnection:
        if self._target.tls is not None:
            return http.client.HTTPSConnection(*host, timeout=timeout, context=self._target.tls)
        return http.client.HTTPConnection(*host, timeout=timeout)


def _target(url: str) -> Target:
    """Return what a URL names; `http` and `https` are other words for the same port."""
    scheme, mark, rest = url.partition("://")
    return target_of({"http": "penstock", "https": "penstocks"}.get(scheme, scheme) + mark + rest)


def _headers(target: Target) -> dict[str, str]:
    if target.user is None:
        return {}
    login = b64encode(f"{target.user}:{target.secret}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _refusal(status: int, data: bytes) -> PenstockError:
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
        return error_by_code(str(told["error"]), str(told["message"]), told.get("key"))
    except (msgspec.DecodeError, KeyError):
        return Unavailable(f"what answers there is no broker of this version: HTTP status {status}", key="url")
