"""What the values of headers mean: numbers, flags, lists, and the several spellings that brokers have for one thing."""

from collections.abc import Mapping

from penstock.model.errors import BadRequest
from penstock.model.names import checked_tags
from penstock.model.settings import checked_timeout

#: Headers as texts.
Texts = Mapping[str, str]

PREFETCH_DEFAULT = 256
#: A window in bytes is taken for so many messages of this size: the engine counts messages.
WINDOW_MESSAGE_BYTES = 1024
_DIGITS_MAX = 18
#: Milliseconds between heart-beats: fewer would cost more than they tell, more would tell too late.
BEAT_MIN, BEAT_MAX = 200, 3_600_000


def decoded(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return headers as texts."""
    if b"" in headers:
        raise BadRequest("a header has no name", key="headers")
    try:
        return {name.decode(): value.decode() for name, value in headers.items()}
    except UnicodeDecodeError:
        raise BadRequest("a header is not valid UTF-8", key="headers") from None


def number(headers: Texts, name: str) -> int | None:
    """Return a whole number, None if it is not there."""
    text = headers.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise BadRequest(f"the header {name} is {text!r}; it must be a whole number", key=name)
    return int(text)


def flag(headers: Texts, *names: str) -> bool:
    """Tell whether one of these headers says `true`."""
    for name in names:
        text = headers.get(name)
        if text is not None:
            if text not in ("true", "false"):
                raise BadRequest(f"the header {name} is {text!r}; it must be true or false", key=name)
            if text == "true":
                return True
    return False


def tags_of(headers: Texts) -> frozenset[str] | None:
    """Return the tags, None if nothing is said of them."""
    text = headers.get("tags")
    return None if text is None else checked_tags([tag.strip() for tag in text.split(",") if tag.strip()])


def heart_beats(text: str) -> tuple[int, int]:
    """Return the milliseconds between heart-beats that a peer can send, and that it wants; 0 for none."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadRequest(f"heart-beat is {text!r}; it must be two numbers of milliseconds", key="heart-beat")
    sends, wants = (0 if part.strip("0") == "" else min(max(int(part), BEAT_MIN), BEAT_MAX) for part in parts)
    return sends, wants


def credit(headers: Texts, most: int) -> int:
    """Return how many messages may be unacknowledged: by count, or roughly by bytes."""
    count = number(headers, "prefetch-count")
    if count is not None:
        return min(count, most) or most  # RabbitMQ's 0 is no limit
    for name in ("activemq.prefetchSize", "credit"):
        if name in headers:
            count = number({name: headers[name].partition(",")[0]}, name)
            if not count:
                raise BadRequest(f"the header {name} is {headers[name]!r}; at least one message is needed", key=name)
            return min(count, most)
    window = headers.get("consumer-window-size")
    if window is None:
        return PREFETCH_DEFAULT
    if window == "-1":
        return most
    size = number(headers, "consumer-window-size") or 0
    return min(max(size // WINDOW_MESSAGE_BYTES, 1), most)


def work_timeout(headers: Texts) -> float | None:
    """Return the seconds of a lease, None where the connection is the lease."""
    text = headers.get("work-timeout")
    if text is None:
        return None
    try:
        return checked_timeout(float(text), "work-timeout")
    except ValueError:
        raise BadRequest(f"work-timeout is {text!r}; it must be a number of seconds", key="work-timeout") from None


def first_sequence(headers: Texts) -> int | None:
    """Return the sequence from which a subscriber wants to begin, None for the end."""
    offset = headers.get("x-stream-offset")
    if offset is not None:
        kind, _, value = offset.partition("=")
        if kind == "first":
            return 0
        if kind == "next":
            return None
        if kind == "offset":
            return number({"x-stream-offset": value}, "x-stream-offset")
        raise BadRequest(f"x-stream-offset is {offset!r}; first, next and offset=N are known", key="x-stream-offset")
    if flag(headers, "activemq.retroactive"):
        return 0
    return None if headers.get("from-seq") == "-1" else number(headers, "from-seq")
