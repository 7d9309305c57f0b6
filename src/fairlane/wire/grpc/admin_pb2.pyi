from fairlane.wire.grpc import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueuePolicy(_message.Message):
    __slots__ = ("visibility_timeout_ms", "max_attempts", "backoff_ms", "backoff_factor", "backoff_max_ms", "backoff_jitter", "deadline_ms", "deadline_action", "waiting_max", "waiting_bytes_max", "key_waiting_max", "key_waiting_bytes_max", "backpressure", "dedup_window_ms", "on_enqueue", "on_failure", "fairness_key_from", "weight_from", "cost_from", "priority_from", "cap_from", "throttles_from", "weights", "caps", "quantum", "strict_priority", "throttle_scope", "journal_retention_ms")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class CapsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VISIBILITY_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FACTOR_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_JITTER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_ACTION_FIELD_NUMBER: _ClassVar[int]
    WAITING_MAX_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    KEY_WAITING_MAX_FIELD_NUMBER: _ClassVar[int]
    KEY_WAITING_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURE_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    ON_ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FROM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FROM_FIELD_NUMBER: _ClassVar[int]
    COST_FROM_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FROM_FIELD_NUMBER: _ClassVar[int]
    CAP_FROM_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FROM_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    CAPS_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    STRICT_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    visibility_timeout_ms: int
    max_attempts: int
    backoff_ms: int
    backoff_factor: float
    backoff_max_ms: int
    backoff_jitter: float
    deadline_ms: int
    deadline_action: str
    waiting_max: int
    waiting_bytes_max: int
    key_waiting_max: int
    key_waiting_bytes_max: int
    backpressure: str
    dedup_window_ms: int
    on_enqueue: str
    on_failure: str
    fairness_key_from: _containers.RepeatedScalarFieldContainer[str]
    weight_from: str
    cost_from: str
    priority_from: str
    cap_from: str
    throttles_from: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.ScalarMap[str, int]
    caps: _containers.ScalarMap[str, int]
    quantum: int
    strict_priority: bool
    throttle_scope: str
    journal_retention_ms: int
    def __init__(self, visibility_timeout_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., backoff_factor: _Optional[float] = ..., backoff_max_ms: _Optional[int] = ..., backoff_jitter: _Optional[float] = ..., deadline_ms: _Optional[int] = ..., deadline_action: _Optional[str] = ..., waiting_max: _Optional[int] = ..., waiting_bytes_max: _Optional[int] = ..., key_waiting_max: _Optional[int] = ..., key_waiting_bytes_max: _Optional[int] = ..., backpressure: _Optional[str] = ..., dedup_window_ms: _Optional[int] = ..., on_enqueue: _Optional[str] = ..., on_failure: _Optional[str] = ..., fairness_key_from: _Optional[_Iterable[str]] = ..., weight_from: _Optional[str] = ..., cost_from: _Optional[str] = ..., priority_from: _Optional[str] = ..., cap_from: _Optional[str] = ..., throttles_from: _Optional[_Iterable[str]] = ..., weights: _Optional[_Mapping[str, int]] = ..., caps: _Optional[_Mapping[str, int]] = ..., quantum: _Optional[int] = ..., strict_priority: _Optional[bool] = ..., throttle_scope: _Optional[str] = ..., journal_retention_ms: _Optional[int] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("queue", "policy", "group")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    queue: str
    policy: QueuePolicy
    group: str
    def __init__(self, queue: _Optional[str] = ..., policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateQueueRequest(_message.Message):
    __slots__ = ("queue", "policy", "reset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    queue: str
    policy: QueuePolicy
    reset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., reset: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("queue", "key")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ...) -> None: ...

class PauseQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeQueueRequest(_message.Message):
    __slots__ = ("queue", "key")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueView]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueView, _Mapping]]] = ...) -> None: ...

class InspectQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("queue", "keys_max")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEYS_MAX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    keys_max: int
    def __init__(self, queue: _Optional[str] = ..., keys_max: _Optional[int] = ...) -> None: ...

class KeyView(_message.Message):
    __slots__ = ("key", "messages", "leased", "weight", "cap", "deficit", "is_paused", "wait_p99_ms", "wait_p50_ms", "throttle", "throttled_until_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    DEFICIT_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    WAIT_P99_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_P50_MS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedScalarFieldContainer[str]
    messages: int
    leased: int
    weight: int
    cap: int
    deficit: int
    is_paused: bool
    wait_p99_ms: int
    wait_p50_ms: int
    throttle: str
    throttled_until_ms: int
    def __init__(self, key: _Optional[_Iterable[str]] = ..., messages: _Optional[int] = ..., leased: _Optional[int] = ..., weight: _Optional[int] = ..., cap: _Optional[int] = ..., deficit: _Optional[int] = ..., is_paused: _Optional[bool] = ..., wait_p99_ms: _Optional[int] = ..., wait_p50_ms: _Optional[int] = ..., throttle: _Optional[str] = ..., throttled_until_ms: _Optional[int] = ...) -> None: ...

class ThrottleView(_message.Message):
    __slots__ = ("name", "rate", "burst", "tokens")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    name: str
    rate: float
    burst: float
    tokens: int
    def __init__(self, name: _Optional[str] = ..., rate: _Optional[float] = ..., burst: _Optional[float] = ..., tokens: _Optional[int] = ...) -> None: ...

class QueueView(_message.Message):
    __slots__ = ("name", "policy", "created_ms", "is_paused", "paused_keys", "waiting", "leased", "size", "dead", "oldest_ms", "active_keys", "waiters", "consumers", "keys", "throttles", "claimed", "registered", "staged", "sinks", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_KEYS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_KEYS_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    policy: QueuePolicy
    created_ms: int
    is_paused: bool
    paused_keys: _containers.RepeatedCompositeFieldContainer[_types_pb2.Key]
    waiting: int
    leased: int
    size: int
    dead: int
    oldest_ms: int
    active_keys: int
    waiters: int
    consumers: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyView]
    throttles: _containers.RepeatedCompositeFieldContainer[ThrottleView]
    claimed: int
    registered: _containers.RepeatedCompositeFieldContainer[_types_pb2.ConsumerView]
    staged: int
    sinks: _containers.RepeatedCompositeFieldContainer[_types_pb2.SinkView]
    partitions: int
    def __init__(self, name: _Optional[str] = ..., policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., created_ms: _Optional[int] = ..., is_paused: _Optional[bool] = ..., paused_keys: _Optional[_Iterable[_Union[_types_pb2.Key, _Mapping]]] = ..., waiting: _Optional[int] = ..., leased: _Optional[int] = ..., size: _Optional[int] = ..., dead: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., active_keys: _Optional[int] = ..., waiters: _Optional[int] = ..., consumers: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyView, _Mapping]]] = ..., throttles: _Optional[_Iterable[_Union[ThrottleView, _Mapping]]] = ..., claimed: _Optional[int] = ..., registered: _Optional[_Iterable[_Union[_types_pb2.ConsumerView, _Mapping]]] = ..., staged: _Optional[int] = ..., sinks: _Optional[_Iterable[_Union[_types_pb2.SinkView, _Mapping]]] = ..., partitions: _Optional[int] = ...) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("fairness_key", "error", "reason", "older_than_ms", "newer_than_ms", "ids")
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    NEWER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    fairness_key: _containers.RepeatedScalarFieldContainer[str]
    error: str
    reason: str
    older_than_ms: int
    newer_than_ms: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, fairness_key: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ..., older_than_ms: _Optional[int] = ..., newer_than_ms: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("queue", "count", "after", "wanted", "with_body")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    count: int
    after: str
    wanted: DeadLetterFilter
    with_body: bool
    def __init__(self, queue: _Optional[str] = ..., count: _Optional[int] = ..., after: _Optional[str] = ..., wanted: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., with_body: _Optional[bool] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[MessageView]
    def __init__(self, messages: _Optional[_Iterable[_Union[MessageView, _Mapping]]] = ...) -> None: ...

class MessageView(_message.Message):
    __slots__ = ("id", "queue", "status", "fairness_key", "weight", "cost", "priority", "throttles", "enqueued_ms", "due_ms", "deadline_ms", "size", "attempts", "failures", "errors", "dead", "token", "owner", "expires_ms", "state_etag", "payload", "headers", "correlation_id", "claim")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_ETAG_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    status: str
    fairness_key: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    cost: int
    priority: str
    throttles: _containers.RepeatedScalarFieldContainer[str]
    enqueued_ms: int
    due_ms: int
    deadline_ms: int
    size: int
    attempts: int
    failures: int
    errors: _containers.RepeatedCompositeFieldContainer[_types_pb2.FailedAttempt]
    dead: _types_pb2.DeadLetter
    token: int
    owner: str
    expires_ms: int
    state_etag: str
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    correlation_id: str
    claim: int
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., status: _Optional[str] = ..., fairness_key: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., cost: _Optional[int] = ..., priority: _Optional[str] = ..., throttles: _Optional[_Iterable[str]] = ..., enqueued_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., size: _Optional[int] = ..., attempts: _Optional[int] = ..., failures: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_types_pb2.FailedAttempt, _Mapping]]] = ..., dead: _Optional[_Union[_types_pb2.DeadLetter, _Mapping]] = ..., token: _Optional[int] = ..., owner: _Optional[str] = ..., expires_ms: _Optional[int] = ..., state_etag: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., correlation_id: _Optional[str] = ..., claim: _Optional[int] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("queue", "id", "with_body")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    with_body: bool
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., with_body: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("queue", "id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("id", "queue", "reason", "words", "until_ms", "turns", "key", "throttle", "owner")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    reason: str
    words: str
    until_ms: int
    turns: int
    key: _containers.RepeatedScalarFieldContainer[str]
    throttle: str
    owner: str
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., reason: _Optional[str] = ..., words: _Optional[str] = ..., until_ms: _Optional[int] = ..., turns: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., throttle: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("queue", "ids")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("queue", "wanted", "count", "rate", "is_dry_run")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    wanted: DeadLetterFilter
    count: int
    rate: float
    is_dry_run: bool
    def __init__(self, queue: _Optional[str] = ..., wanted: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., count: _Optional[int] = ..., rate: _Optional[float] = ..., is_dry_run: _Optional[bool] = ...) -> None: ...

class RedriveView(_message.Message):
    __slots__ = ("id", "queue", "status", "is_dry_run", "total", "scanned", "matched", "moved", "started_ms", "ended_ms", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    status: str
    is_dry_run: bool
    total: int
    scanned: int
    matched: int
    moved: int
    started_ms: int
    ended_ms: int
    error: str
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., status: _Optional[str] = ..., is_dry_run: _Optional[bool] = ..., total: _Optional[int] = ..., scanned: _Optional[int] = ..., matched: _Optional[int] = ..., moved: _Optional[int] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class GetRedriveRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListRedrivesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRedrivesResponse(_message.Message):
    __slots__ = ("redrives",)
    REDRIVES_FIELD_NUMBER: _ClassVar[int]
    redrives: _containers.RepeatedCompositeFieldContainer[RedriveView]
    def __init__(self, redrives: _Optional[_Iterable[_Union[RedriveView, _Mapping]]] = ...) -> None: ...

class StopRedriveRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class SetConfigRequest(_message.Message):
    __slots__ = ("values", "remove")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class SetConfigResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListConfigRequest(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ...) -> None: ...

class ListConfigResponse(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListThrottlesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListThrottlesResponse(_message.Message):
    __slots__ = ("throttles",)
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    throttles: _containers.RepeatedCompositeFieldContainer[ThrottleView]
    def __init__(self, throttles: _Optional[_Iterable[_Union[ThrottleView, _Mapping]]] = ...) -> None: ...

class TryHookRequest(_message.Message):
    __slots__ = ("queue", "hook", "script", "headers", "payload_size", "attempts", "error")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    queue: str
    hook: str
    script: str
    headers: _containers.ScalarMap[str, str]
    payload_size: int
    attempts: int
    error: str
    def __init__(self, queue: _Optional[str] = ..., hook: _Optional[str] = ..., script: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., payload_size: _Optional[int] = ..., attempts: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class EnqueueAnswer(_message.Message):
    __slots__ = ("fairness_key", "weight", "throttles", "cost", "priority", "cap", "delay_ms", "deadline_ms")
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    fairness_key: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    throttles: _containers.RepeatedScalarFieldContainer[str]
    cost: int
    priority: int
    cap: int
    delay_ms: int
    deadline_ms: int
    def __init__(self, fairness_key: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., throttles: _Optional[_Iterable[str]] = ..., cost: _Optional[int] = ..., priority: _Optional[int] = ..., cap: _Optional[int] = ..., delay_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class FailureAnswer(_message.Message):
    __slots__ = ("is_dead", "delay_ms")
    IS_DEAD_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    is_dead: bool
    delay_ms: int
    def __init__(self, is_dead: _Optional[bool] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class TryHookResponse(_message.Message):
    __slots__ = ("on_enqueue", "on_failure", "fault", "elapsed_us")
    ON_ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_US_FIELD_NUMBER: _ClassVar[int]
    on_enqueue: EnqueueAnswer
    on_failure: FailureAnswer
    fault: str
    elapsed_us: int
    def __init__(self, on_enqueue: _Optional[_Union[EnqueueAnswer, _Mapping]] = ..., on_failure: _Optional[_Union[FailureAnswer, _Mapping]] = ..., fault: _Optional[str] = ..., elapsed_us: _Optional[int] = ...) -> None: ...

class GetHookStatisticsRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class HookStatisticsResponse(_message.Message):
    __slots__ = ("calls", "faults", "bypassed", "elapsed_us", "is_open", "last_fault", "trips")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    BYPASSED_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_US_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    LAST_FAULT_FIELD_NUMBER: _ClassVar[int]
    TRIPS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    faults: int
    bypassed: int
    elapsed_us: int
    is_open: bool
    last_fault: str
    trips: int
    def __init__(self, calls: _Optional[int] = ..., faults: _Optional[int] = ..., bypassed: _Optional[int] = ..., elapsed_us: _Optional[int] = ..., is_open: _Optional[bool] = ..., last_fault: _Optional[str] = ..., trips: _Optional[int] = ...) -> None: ...

class ReadJournalRequest(_message.Message):
    __slots__ = ("after", "count", "queue")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    after: int
    count: int
    queue: str
    def __init__(self, after: _Optional[int] = ..., count: _Optional[int] = ..., queue: _Optional[str] = ...) -> None: ...

class ReadJournalResponse(_message.Message):
    __slots__ = ("events", "position")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedScalarFieldContainer[str]
    position: int
    def __init__(self, events: _Optional[_Iterable[str]] = ..., position: _Optional[int] = ...) -> None: ...

class SetReaderRequest(_message.Message):
    __slots__ = ("name", "position", "queue")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    position: int
    queue: str
    def __init__(self, name: _Optional[str] = ..., position: _Optional[int] = ..., queue: _Optional[str] = ...) -> None: ...

class SetReaderResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveReaderRequest(_message.Message):
    __slots__ = ("name", "queue")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue: str
    def __init__(self, name: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class RemoveReaderResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReadersRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ListReadersResponse(_message.Message):
    __slots__ = ("readers",)
    READERS_FIELD_NUMBER: _ClassVar[int]
    readers: _containers.RepeatedCompositeFieldContainer[ReaderView]
    def __init__(self, readers: _Optional[_Iterable[_Union[ReaderView, _Mapping]]] = ...) -> None: ...

class ReaderView(_message.Message):
    __slots__ = ("name", "position", "at_ms", "behind", "is_passed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    IS_PASSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    position: int
    at_ms: int
    behind: int
    is_passed: bool
    def __init__(self, name: _Optional[str] = ..., position: _Optional[int] = ..., at_ms: _Optional[int] = ..., behind: _Optional[int] = ..., is_passed: _Optional[bool] = ...) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterResponse(_message.Message):
    __slots__ = ("node", "nodes", "groups", "splits")
    class SplitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Split
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Split, _Mapping]] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    node: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeView]
    groups: _containers.RepeatedCompositeFieldContainer[GroupView]
    splits: _containers.MessageMap[str, _types_pb2.Split]
    def __init__(self, node: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeView, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupView, _Mapping]]] = ..., splits: _Optional[_Mapping[str, _types_pb2.Split]] = ...) -> None: ...

class NodeView(_message.Message):
    __slots__ = ("name", "address", "grpc", "is_live", "is_draining", "beat", "silent_ms", "version", "groups", "takeovers")
    class GroupsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    grpc: str
    is_live: bool
    is_draining: bool
    beat: int
    silent_ms: int
    version: str
    groups: _containers.ScalarMap[str, float]
    takeovers: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., grpc: _Optional[str] = ..., is_live: _Optional[bool] = ..., is_draining: _Optional[bool] = ..., beat: _Optional[int] = ..., silent_ms: _Optional[int] = ..., version: _Optional[str] = ..., groups: _Optional[_Mapping[str, float]] = ..., takeovers: _Optional[int] = ...) -> None: ...

class GroupView(_message.Message):
    __slots__ = ("name", "queues", "home", "owner", "is_pinned", "moves")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    IS_PINNED_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    name: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    home: str
    owner: str
    is_pinned: bool
    moves: int
    def __init__(self, name: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., home: _Optional[str] = ..., owner: _Optional[str] = ..., is_pinned: _Optional[bool] = ..., moves: _Optional[int] = ...) -> None: ...

class MoveQueueRequest(_message.Message):
    __slots__ = ("queue", "node")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    node: str
    def __init__(self, queue: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class MoveQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SplitQueueRequest(_message.Message):
    __slots__ = ("queue", "partitions")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partitions: int
    def __init__(self, queue: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node", "is_draining")
    NODE_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    node: str
    is_draining: bool
    def __init__(self, node: _Optional[str] = ..., is_draining: _Optional[bool] = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
