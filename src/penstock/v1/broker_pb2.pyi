from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Confirm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIRM_UNSPECIFIED: _ClassVar[Confirm]
    CONFIRM_READY: _ClassVar[Confirm]
    CONFIRM_WRITE: _ClassVar[Confirm]
    CONFIRM_SYNC: _ClassVar[Confirm]

class Match(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MATCH_UNSPECIFIED: _ClassVar[Match]
    MATCH_EXACT: _ClassVar[Match]
    MATCH_STRICT: _ClassVar[Match]
    MATCH_COMBINED: _ClassVar[Match]
    MATCH_ANY: _ClassVar[Match]
CONFIRM_UNSPECIFIED: Confirm
CONFIRM_READY: Confirm
CONFIRM_WRITE: Confirm
CONFIRM_SYNC: Confirm
MATCH_UNSPECIFIED: Match
MATCH_EXACT: Match
MATCH_STRICT: Match
MATCH_COMBINED: Match
MATCH_ANY: Match

class Tags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("queue", "topic", "tags", "body", "headers", "priority", "delay", "ttl", "key", "group", "dedup_id")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DEDUP_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    body: bytes
    headers: _containers.ScalarMap[str, str]
    priority: int
    delay: float
    ttl: float
    key: str
    group: str
    dedup_id: str
    def __init__(self, queue: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., priority: _Optional[int] = ..., delay: _Optional[float] = ..., ttl: _Optional[float] = ..., key: _Optional[str] = ..., group: _Optional[str] = ..., dedup_id: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("shard", "sequence", "duplicate")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    shard: int
    sequence: int
    duplicate: bool
    def __init__(self, shard: _Optional[int] = ..., sequence: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("message", "confirm")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    message: NewMessage
    confirm: Confirm
    def __init__(self, message: _Optional[_Union[NewMessage, _Mapping]] = ..., confirm: _Optional[_Union[Confirm, str]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("receipt",)
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    receipt: Receipt
    def __init__(self, receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class EnqueueStreamRequest(_message.Message):
    __slots__ = ("messages", "queue", "topic", "tags", "confirm")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    queue: str
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    confirm: Confirm
    def __init__(self, messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., queue: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., confirm: _Optional[_Union[Confirm, str]] = ...) -> None: ...

class EnqueueStreamResponse(_message.Message):
    __slots__ = ("shard", "sequences", "duplicates", "refusals")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    duplicates: _containers.RepeatedScalarFieldContainer[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, shard: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ..., duplicates: _Optional[_Iterable[int]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("place", "sequence", "code", "key", "text")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    place: int
    sequence: int
    code: str
    key: str
    text: str
    def __init__(self, place: _Optional[int] = ..., sequence: _Optional[int] = ..., code: _Optional[str] = ..., key: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("queue", "topic", "tags", "body", "headers", "priority", "id", "shard", "sequence", "published_at", "attempt", "redelivered")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    body: bytes
    headers: _containers.ScalarMap[str, str]
    priority: int
    id: int
    shard: int
    sequence: int
    published_at: float
    attempt: int
    redelivered: bool
    def __init__(self, queue: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., priority: _Optional[int] = ..., id: _Optional[int] = ..., shard: _Optional[int] = ..., sequence: _Optional[int] = ..., published_at: _Optional[float] = ..., attempt: _Optional[int] = ..., redelivered: _Optional[bool] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("queue", "tags", "match", "wait", "work_timeout", "selector", "sync")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    WORK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tags: Tags
    match: Match
    wait: float
    work_timeout: float
    selector: str
    sync: Confirm
    def __init__(self, queue: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., match: _Optional[_Union[Match, str]] = ..., wait: _Optional[float] = ..., work_timeout: _Optional[float] = ..., selector: _Optional[str] = ..., sync: _Optional[_Union[Confirm, str]] = ...) -> None: ...

class PollResponse(_message.Message):
    __slots__ = ("message", "lease")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    message: Message
    lease: Lease
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("queue", "tags", "shard", "sequence", "attempt", "number")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    shard: int
    sequence: int
    attempt: int
    number: int
    def __init__(self, queue: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., shard: _Optional[int] = ..., sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class CompletePollRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class CompletePollResponse(_message.Message):
    __slots__ = ("completed", "late")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    completed: bool
    late: bool
    def __init__(self, completed: _Optional[bool] = ..., late: _Optional[bool] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("lease", "reason", "reject")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    reason: str
    reject: bool
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., reason: _Optional[str] = ..., reject: _Optional[bool] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("queue", "topic", "tags", "match", "work_timeout", "selector", "sync", "durable", "from_seq")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    WORK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    queue: str
    topic: str
    tags: Tags
    match: Match
    work_timeout: float
    selector: str
    sync: Confirm
    durable: str
    from_seq: int
    def __init__(self, queue: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., match: _Optional[_Union[Match, str]] = ..., work_timeout: _Optional[float] = ..., selector: _Optional[str] = ..., sync: _Optional[_Union[Confirm, str]] = ..., durable: _Optional[str] = ..., from_seq: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("sequence", "reason", "reject")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    reason: str
    reject: bool
    def __init__(self, sequence: _Optional[int] = ..., reason: _Optional[str] = ..., reject: _Optional[bool] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("subscription", "credit", "complete", "fail", "release", "keep_alive", "keep_all_alive", "leave", "label")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALL_ALIVE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    credit: int
    complete: _containers.RepeatedScalarFieldContainer[int]
    fail: _containers.RepeatedCompositeFieldContainer[Failure]
    release: _containers.RepeatedScalarFieldContainer[int]
    keep_alive: _containers.RepeatedScalarFieldContainer[int]
    keep_all_alive: bool
    leave: bool
    label: int
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ..., credit: _Optional[int] = ..., complete: _Optional[_Iterable[int]] = ..., fail: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ..., release: _Optional[_Iterable[int]] = ..., keep_alive: _Optional[_Iterable[int]] = ..., keep_all_alive: _Optional[bool] = ..., leave: _Optional[bool] = ..., label: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("messages", "settled")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    settled: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., settled: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("label", "late", "refusals")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    label: int
    late: _containers.RepeatedScalarFieldContainer[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, label: _Optional[int] = ..., late: _Optional[_Iterable[int]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("retry_limit", "heartbeat_timeout", "retry_delay", "retry_backoff", "retry_delay_max", "dead_letter", "max_length", "max_bytes", "overflow", "ttl", "dedup_window", "paused")
    RETRY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_FIELD_NUMBER: _ClassVar[int]
    RETRY_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    retry_limit: int
    heartbeat_timeout: float
    retry_delay: float
    retry_backoff: float
    retry_delay_max: float
    dead_letter: str
    max_length: int
    max_bytes: int
    overflow: str
    ttl: float
    dedup_window: float
    paused: bool
    def __init__(self, retry_limit: _Optional[int] = ..., heartbeat_timeout: _Optional[float] = ..., retry_delay: _Optional[float] = ..., retry_backoff: _Optional[float] = ..., retry_delay_max: _Optional[float] = ..., dead_letter: _Optional[str] = ..., max_length: _Optional[int] = ..., max_bytes: _Optional[int] = ..., overflow: _Optional[str] = ..., ttl: _Optional[float] = ..., dedup_window: _Optional[float] = ..., paused: _Optional[bool] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("queue", "tags", "settings", "exclusive")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    settings: QueueSettings
    exclusive: bool
    def __init__(self, queue: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., exclusive: _Optional[bool] = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: _Optional[bool] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue", "tags")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("queue", "topic", "tags")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("queue", "topic")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    queue: QueueStatus
    topic: TopicStatus
    def __init__(self, queue: _Optional[_Union[QueueStatus, _Mapping]] = ..., topic: _Optional[_Union[TopicStatus, _Mapping]] = ...) -> None: ...

class QueueStatus(_message.Message):
    __slots__ = ("queue", "tags", "ready", "assigned", "delayed", "dead_letters", "consumers", "publishers", "bytes", "oldest_age_seconds", "totals", "settings")
    class TotalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    ready: int
    assigned: int
    delayed: int
    dead_letters: int
    consumers: int
    publishers: int
    bytes: int
    oldest_age_seconds: float
    totals: _containers.ScalarMap[str, int]
    settings: QueueSettings
    def __init__(self, queue: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., ready: _Optional[int] = ..., assigned: _Optional[int] = ..., delayed: _Optional[int] = ..., dead_letters: _Optional[int] = ..., consumers: _Optional[int] = ..., publishers: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_age_seconds: _Optional[float] = ..., totals: _Optional[_Mapping[str, int]] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ...) -> None: ...

class TopicStatus(_message.Message):
    __slots__ = ("topic", "publishers", "subscribers", "kept", "waiting", "bytes", "totals")
    class TotalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    publishers: int
    subscribers: _containers.RepeatedCompositeFieldContainer[Subscriber]
    kept: int
    waiting: int
    bytes: int
    totals: _containers.ScalarMap[str, int]
    def __init__(self, topic: _Optional[str] = ..., publishers: _Optional[int] = ..., subscribers: _Optional[_Iterable[_Union[Subscriber, _Mapping]]] = ..., kept: _Optional[int] = ..., waiting: _Optional[int] = ..., bytes: _Optional[int] = ..., totals: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Subscriber(_message.Message):
    __slots__ = ("name", "pattern", "connected", "waiting", "assigned")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    name: str
    pattern: str
    connected: bool
    waiting: int
    assigned: int
    def __init__(self, name: _Optional[str] = ..., pattern: _Optional[str] = ..., connected: _Optional[bool] = ..., waiting: _Optional[int] = ..., assigned: _Optional[int] = ...) -> None: ...
