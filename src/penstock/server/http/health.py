"""Whether the broker is sound and ready: what watchers ask."""

from http import HTTPStatus

from penstock.runtime.runtime import Runtime
from penstock.server.http.messages import Request, Response, json_response
from penstock.server.http.router import Router


class Health:
    """Answers `/healthz` and `/readyz`, to strangers too."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def serve(self, router: Router) -> None:
        """Take the requests on."""
        router.add("GET", "/healthz", self.is_sound, is_open=True)
        router.add("GET", "/readyz", self.is_ready, is_open=True)

    def is_sound(self, request: Request) -> Response:  # noqa: ARG002  # all are answered alike
        """Tell whether promises can be kept; a failed store ends them until somebody starts the broker anew."""
        if self._runtime.failure is not None:
            return _unwell(f"the store has failed: {self._runtime.failure}")
        return json_response({"status": "ok"})

    def is_ready(self, request: Request) -> Response:
        """Tell whether messages are accepted."""
        if self._runtime.failure is None and not self._runtime.has_room:
            return _unwell("the disk is full")
        return self.is_sound(request)


def _unwell(reason: str) -> Response:
    return json_response({"status": "unavailable", "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)
