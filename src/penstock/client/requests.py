"""What the calls of a client become: requests of the native protocol, checked as far as that can be without the broker."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.model.errors import BadRequest
from penstock.model.limits import Limits
from penstock.model.publication import checked_body
from penstock.model.stages import checked_level, checked_stages
from penstock.protocols.native.messages import Post, Request

#: The broker has limits of its own, and says so; this one keeps what cannot be a body from being sent at all.
_LIMITS = Limits(body_bytes_max=2**32 - 1)


def body_of(body: object) -> bytes:
    """Return a body as bytes."""
    return body if type(body) is bytes else checked_body(body, _LIMITS)


def texts_of(values: object, key: str) -> tuple[str, ...]:
    """Return a list of texts, such as tags."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadRequest(f"{key} must be a list of texts, not {values!r}", key=key)
    return tuple(values)


def checked(request: Request) -> Request:
    """Return a request if all of its fields are of their types."""
    try:
        return msgspec.convert(msgspec.structs.asdict(request), type(request), str_keys=True)
    except msgspec.ValidationError as error:
        field = str(error).partition("`$.")[2].partition("`")[0].partition("[")[0]
        raise BadRequest(f"{field or 'the request'} is wrong: {error}", key=field or None) from None


def post_of(
    *,
    body: object,
    queue: str | None = None,
    topic: str | None = None,
    tags: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    notify: Iterable[str] = (),
    delay: float | None = None,
    **more: Any,
) -> Post:
    """Return a post."""
    data = body_of(body)
    checked_stages(notify)
    try:
        post = Post(
            queue=queue,
            topic=topic,
            message="",
            tags=texts_of(tags, "tags"),
            headers=dict(headers or {}),
            notify=texts_of(notify, "notify"),  # type: ignore[arg-type]  # they were checked
            delay=delay or 0.0,
            **more,
        )
    except TypeError as error:
        raise BadRequest(f"a post cannot say that: {error}", key="post") from None
    checked(post)
    post.message = data  # type: ignore[assignment]  # bytes, as bincode has it
    return post


def level_of(confirm: object, default: str) -> Any:
    """Return the name of the level that a call waits for."""
    return default if confirm is None else checked_level(confirm, "confirm").value
