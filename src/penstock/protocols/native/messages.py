"""The vocabulary of the native protocol: every request and answer, with the type, default and bounds of each field.

This is the only place that knows the fields. JSON is read and written by these classes, bincode by the order in which
the fields stand here, and the tables of docs/protocols/native.md are compared with them by a test.
"""

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from penstock.model.limits import SECONDS_MAX, UINT32_MAX
from penstock.model.publication import PRIORITY_DEFAULT

UINT64_MAX = 2**64 - 1
CREDIT_DEFAULT = 256


class Wire(NamedTuple):
    """What a type is called in Rust, and to people."""

    rust: str
    words: str


_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]

U32: TypeAlias = Annotated[
    int, msgspec.Meta(ge=0, le=UINT32_MAX), Wire("u32", f"a whole number from 0 to {UINT32_MAX}")
]
# The library cannot bound what passes 63 bits: whoever uses the number checks its upper bound.
U64: TypeAlias = Annotated[int, msgspec.Meta(ge=0), Wire("u64", f"a whole number from 0 to {UINT64_MAX}")]
Seconds: TypeAlias = Annotated[
    float, msgspec.Meta(ge=0, le=SECONDS_MAX), Wire("f64", f"a number of seconds from 0 to {SECONDS_MAX:.0f}")
]
Moment: TypeAlias = Annotated[float, Wire("f64", "seconds since 1970")]
Flag: TypeAlias = Annotated[bool, Wire("bool", "true or false")]
Text: TypeAlias = Annotated[str, Wire("String", "a text")]
#: Once it is read from bincode, bytes; `body_of` makes bytes of either.
Body: TypeAlias = Annotated[str | list[_Byte], Wire("Vec<u8>", "a text, or an array of byte values")]
Texts: TypeAlias = Annotated[tuple[Text, ...], Wire("Vec<String>", "an array of texts")]
Headers: TypeAlias = Annotated[dict[Text, Text], Wire("BTreeMap<String, String>", "an object of texts")]
Values: TypeAlias = Annotated[dict[str, Any], Wire("BTreeMap<String, Value>", "an object")]
LevelName: TypeAlias = Annotated[Literal["ready", "write", "sync"], Wire("Level", "one of `ready`, `write`, `sync`")]
StageName: TypeAlias = Annotated[
    Literal["ready", "write", "sync", "assign", "finish", "retry", "drop"],
    Wire("Stage", "one of `ready`, `write`, `sync`, `assign`, `finish`, `retry`, `drop`"),
]
StageNames: TypeAlias = Annotated[tuple[StageName, ...], Wire("Vec<Stage>", "an array of stages")]
MatchName: TypeAlias = Annotated[
    Literal["exact", "strict", "combined", "any"], Wire("Match", "one of `exact`, `strict`, `combined`, `any`")
]


class Request(msgspec.Struct, tag_field="type", omit_defaults=True):
    """What a client sends."""

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.__struct_config__.tag)


class Create(Request, tag="create", kw_only=True):
    """Make a queue or a topic."""

    queue: Text | None = None
    label: U64 | None = None
    tags: Texts = ()
    topic: Text | None = None
    settings: Values = {}
    exclusive: Flag = False


class Alter(Request, tag="alter", kw_only=True):
    """Change settings of a queue or a topic."""

    queue: Text | None = None
    label: U64 | None = None
    tags: Texts = ()
    topic: Text | None = None
    settings: Values = {}


class Delete(Request, tag="delete", kw_only=True):
    """Delete a queue or a topic with all that is in it."""

    queue: Text | None = None
    label: U64 | None = None
    tags: Texts = ()
    topic: Text | None = None


class Purge(Request, tag="purge", kw_only=True):
    """Drop all that waits in a queue."""

    queue: Text
    label: U64 | None = None
    tags: Texts = ()


class Post(Request, tag="post", kw_only=True):
    """Publish a message."""

    queue: Text | None = None
    message: Body
    priority: U32 = PRIORITY_DEFAULT
    label: U64 | None = None
    notify: StageNames = ()
    tags: Texts = ()
    topic: Text | None = None
    headers: Headers = {}
    delay: Seconds = 0.0
    ttl: Seconds | None = None
    key: Text | None = None
    group: Text | None = None
    dedup_id: Text | None = None


class Pop(Request, tag="pop", kw_only=True):
    """Take a message that is settled by being sent."""

    queue: Text
    timeout: Seconds = 0.0
    label: U64 | None = None
    tags: Texts | None = None
    match: MatchName = "exact"
    selector: Text | None = None


class Fetch(Request, tag="fetch", kw_only=True):
    """Take a message to work on."""

    queue: Text
    block_timeout: Seconds = 0.0
    work_timeout: Seconds | None = None
    sync: LevelName = "ready"
    label: U64 | None = None
    tags: Texts | None = None
    match: MatchName = "exact"
    selector: Text | None = None


class Finish(Request, tag="finish", kw_only=True):
    """Settle a message with success."""

    queue: Text | None = None
    sequence: U64
    shard: U32 = 0
    label: U64 | None = None
    response: LevelName | None = None


class Fail(Request, tag="fail", kw_only=True):
    """Count a failure of a message."""

    queue: Text | None = None
    sequence: U64
    shard: U32 = 0
    label: U64 | None = None
    reason: Text = ""


class Release(Request, tag="release", kw_only=True):
    """Let a message wait again without counting."""

    queue: Text | None = None
    sequence: U64
    shard: U32 = 0
    label: U64 | None = None


class Reject(Request, tag="reject", kw_only=True):
    """Dead-letter a message at once."""

    queue: Text | None = None
    sequence: U64
    shard: U32 = 0
    label: U64 | None = None
    reason: Text = "rejected"


class Keepalive(Request, tag="keepalive", kw_only=True):
    """Start the lease of a message anew, or all leases."""

    queue: Text | None = None
    sequence: U64 | None = None
    shard: U32 = 0
    label: U64 | None = None


class Subscribe(Request, tag="subscribe", kw_only=True):
    """Take messages as they come."""

    queue: Text | None = None
    label: U64 | None = None
    tags: Texts | None = None
    match: MatchName = "exact"
    selector: Text | None = None
    topic: Text | None = None
    durable: Text | None = None
    from_seq: U64 | None = None
    credit: U32 = CREDIT_DEFAULT
    work_timeout: Seconds | None = None
    sync: LevelName = "ready"


class Unsubscribe(Request, tag="unsubscribe", kw_only=True):
    """Take no more, or remove a durable subscriber for good."""

    subscription: U64 | None = None
    label: U64 | None = None
    topic: Text | None = None
    durable: Text | None = None


class Batch(Request, tag="batch", kw_only=True):
    """Publish and settle, all or nothing."""

    requests: Annotated[list[Post | Finish | Fail | Release | Reject], Wire("Vec<Request>", "an array of requests")]
    label: U64 | None = None


class AskStatus(Request, tag="status", kw_only=True):
    """Look at a queue or a topic."""

    queue: Text | None = None
    label: U64 | None = None
    tags: Texts = ()
    topic: Text | None = None


class Ping(Request, tag="ping", kw_only=True):
    """Ask whether somebody is there."""

    label: U64 | None = None


class Login(Request, tag="login", kw_only=True):
    """Say who one is."""

    user: Text
    secret: Text
    label: U64 | None = None


class Resume(Request, tag="resume", kw_only=True):
    """Go on as a client whose connection was lost, or ask to be kept from now on."""

    id: Text | None = None
    resume_timeout: Seconds | None = None
    label: U64 | None = None


class Answer(msgspec.Struct, tag_field="type", omit_defaults=True):
    """What the broker sends."""

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.__struct_config__.tag)


class Hello(Answer, tag="hello", kw_only=True):
    """Comes first, and answers `resume`."""

    id: Text
    label: U64 | None = None


class NoticeOf(Answer, tag="notice", kw_only=True):
    """A message has reached a stage."""

    label: U64 | None = None
    notice: StageName
    late: Flag = False


class Delivery(Answer, tag="message", kw_only=True):
    """A message for a consumer."""

    label: U64 | None = None
    shard: U32
    sequence: U64
    body: Body
    finished: Flag
    queue: Text | None = None
    tags: Texts = ()
    topic: Text | None = None
    id: U32
    attempt: U32
    priority: U32
    headers: Headers = {}
    redelivered: Flag = False
    published_at: Moment


class NoMessage(Answer, tag="nomessage", kw_only=True):
    """No message came in time."""

    label: U64 | None = None


class Refusal(Answer, tag="error", kw_only=True):
    """A request was refused."""

    label: U64 | None = None
    code: Text
    key: Text | None = None
    text: Text


class Ok(Answer, tag="ok", kw_only=True):
    """A request was fulfilled."""

    label: U64 | None = None
    late: Flag = False
    shard: U32 = 0
    sequence: U64 | None = None
    count: U64 | None = None


class Status(Answer, tag="status", kw_only=True):
    """The state of a queue or a topic."""

    label: U64 | None = None
    status: Values


class Pong(Answer, tag="pong", kw_only=True):
    """Somebody is there."""

    label: U64 | None = None


#: In the order in which bincode numbers them.
REQUESTS: tuple[type[Request], ...] = (
    Create, Alter, Delete, Purge, Post, Pop, Fetch, Finish, Fail, Release, Reject, Keepalive, Subscribe, Unsubscribe,
    Batch, AskStatus, Ping, Login, Resume,
)  # fmt: skip
ANSWERS: tuple[type[Answer], ...] = (Hello, NoticeOf, Delivery, NoMessage, Refusal, Ok, Status, Pong)

AnyRequest: TypeAlias = (
    Create | Alter | Delete | Purge | Post | Pop | Fetch | Finish | Fail | Release | Reject | Keepalive | Subscribe
    | Unsubscribe | Batch | AskStatus | Ping | Login | Resume
)  # fmt: skip
AnyAnswer: TypeAlias = Hello | NoticeOf | Delivery | NoMessage | Refusal | Ok | Status | Pong
#: What a batch may be made of.
Operation: TypeAlias = Post | Finish | Fail | Release | Reject
OPERATIONS: tuple[type[Request], ...] = get_args(Operation)
