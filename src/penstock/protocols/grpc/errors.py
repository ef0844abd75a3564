"""Errors as gRPC tells them: a status of the call, and in its trailing metadata the code of the error and its key."""

from penstock.model.errors import PenstockError, Unavailable

#: Metadata in which the code and the key stand.
CODE, KEY = "penstock-code", "penstock-key"
_STATUSES = {
    "NoObject": "NOT_FOUND",
    "ObjectAlreadyExists": "ALREADY_EXISTS",
    "PermissionDenied": "PERMISSION_DENIED",
    "BadRequest": "INVALID_ARGUMENT",
    "TooLarge": "RESOURCE_EXHAUSTED",
    "QueueFull": "RESOURCE_EXHAUSTED",
    "NotAssigned": "FAILED_PRECONDITION",
    "Unavailable": "UNAVAILABLE",
}


def status_of(error: PenstockError) -> str:
    """Return the name of the status that tells an error."""
    if error.code == "PermissionDenied" and error.key == "login":
        return "UNAUTHENTICATED"
    return _STATUSES.get(error.code, "INTERNAL")


def metadata_of(error: PenstockError) -> tuple[tuple[str, str], ...]:
    """Return what stands beside the status; only ASCII may."""
    key = (error.key or "").encode("ascii", "backslashreplace").decode()
    return ((CODE, error.code), (KEY, key)) if key.isprintable() and key else ((CODE, error.code),)


def closing() -> Unavailable:
    """Return what peers are told when the server stops."""
    return Unavailable("the broker is closing; try again in a moment", key="broker")
