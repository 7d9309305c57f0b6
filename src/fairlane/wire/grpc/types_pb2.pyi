from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Error(_message.Message):
    __slots__ = ("code", "cause", "remedy", "retry_after_ms", "at", "split")
    CODE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    code: str
    cause: str
    remedy: str
    retry_after_ms: int
    at: str
    split: Split
    def __init__(self, code: _Optional[str] = ..., cause: _Optional[str] = ..., remedy: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., at: _Optional[str] = ..., split: _Optional[_Union[Split, _Mapping]] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("partitions", "made", "by_message")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    BY_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    made: int
    by_message: bool
    def __init__(self, partitions: _Optional[int] = ..., made: _Optional[int] = ..., by_message: _Optional[bool] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("payload", "headers", "fairness_key", "weight", "cost", "priority", "throttles", "delay_ms", "deadline_ms", "dedup_id", "correlation_id")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    fairness_key: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    cost: int
    priority: str
    throttles: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    deadline_ms: int
    dedup_id: str
    correlation_id: str
    def __init__(self, payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., fairness_key: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., cost: _Optional[int] = ..., priority: _Optional[str] = ..., throttles: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., dedup_id: _Optional[str] = ..., correlation_id: _Optional[str] = ...) -> None: ...

class FailedAttempt(_message.Message):
    __slots__ = ("at_ms", "attempt", "reason", "error")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    attempt: int
    reason: str
    error: str
    def __init__(self, at_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("origin", "reason", "at_ms")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    origin: str
    reason: str
    at_ms: int
    def __init__(self, origin: _Optional[str] = ..., reason: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("id", "queue", "token", "payload", "headers", "fairness_key", "attempt", "expires_ms", "enqueued_ms", "correlation_id", "cost", "priority", "failures", "state", "state_etag", "errors", "dead")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_ETAG_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    token: int
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    fairness_key: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    expires_ms: int
    enqueued_ms: int
    correlation_id: str
    cost: int
    priority: str
    failures: int
    state: bytes
    state_etag: str
    errors: _containers.RepeatedCompositeFieldContainer[FailedAttempt]
    dead: DeadLetter
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., token: _Optional[int] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., fairness_key: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., expires_ms: _Optional[int] = ..., enqueued_ms: _Optional[int] = ..., correlation_id: _Optional[str] = ..., cost: _Optional[int] = ..., priority: _Optional[str] = ..., failures: _Optional[int] = ..., state: _Optional[bytes] = ..., state_etag: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[FailedAttempt, _Mapping]]] = ..., dead: _Optional[_Union[DeadLetter, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("id", "token", "cost")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    id: str
    token: int
    cost: int
    def __init__(self, id: _Optional[str] = ..., token: _Optional[int] = ..., cost: _Optional[int] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("error", "expires_ms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    error: Error
    expires_ms: int
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class Results(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class ConsumerView(_message.Message):
    __slots__ = ("queue", "name", "epoch", "claimed", "done", "open_messages", "heard_ms", "idle_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OPEN_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    epoch: int
    claimed: int
    done: int
    open_messages: int
    heard_ms: int
    idle_ms: int
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., claimed: _Optional[int] = ..., done: _Optional[int] = ..., open_messages: _Optional[int] = ..., heard_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class SinkView(_message.Message):
    __slots__ = ("queue", "name", "batch", "staged_messages", "staged_bytes", "heard_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    batch: int
    staged_messages: int
    staged_bytes: int
    heard_ms: int
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., batch: _Optional[int] = ..., staged_messages: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., heard_ms: _Optional[int] = ...) -> None: ...
