"""Errors that a broker tells, as the exceptions that the embedded broker raises."""

from penstock.model import errors
from penstock.model.errors import PenstockError, Unavailable
from penstock.protocols.native.messages import Refusal

_BY_CODE: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in (
        errors.NoObject,
        errors.ObjectAlreadyExists,
        errors.PermissionDenied,
        errors.BadRequest,
        errors.TooLarge,
        errors.QueueFull,
        errors.NotAssigned,
        errors.Unavailable,
    )
}


def error_of(refusal: Refusal) -> PenstockError:
    """Return the exception that a refusal stands for."""
    return error_by_code(refusal.code, refusal.text, refusal.key)


def error_by_code(code: str, text: str, key: str | None) -> PenstockError:
    """Return the exception that has this code."""
    return _BY_CODE.get(code, PenstockError)(text, key=key)


def not_open() -> Unavailable:
    """Return what is raised by a client that is closed, or was never opened."""
    return Unavailable("this client is not open; use it inside `async with penstock.connect(...)`", key="client")
