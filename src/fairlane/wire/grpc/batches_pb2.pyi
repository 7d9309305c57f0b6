from fairlane.wire.grpc import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterConsumerRequest(_message.Message):
    __slots__ = ("queue", "consumer", "idle_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    consumer: str
    idle_ms: int
    def __init__(self, queue: _Optional[str] = ..., consumer: _Optional[str] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class MakeClaimRequest(_message.Message):
    __slots__ = ("queue", "consumer", "epoch", "done", "count", "size_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    consumer: str
    epoch: int
    done: int
    count: int
    size_bytes: int
    def __init__(self, queue: _Optional[str] = ..., consumer: _Optional[str] = ..., epoch: _Optional[int] = ..., done: _Optional[int] = ..., count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ClaimResponse(_message.Message):
    __slots__ = ("number", "count", "size_bytes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    number: int
    count: int
    size_bytes: int
    def __init__(self, number: _Optional[int] = ..., count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ReadClaimRequest(_message.Message):
    __slots__ = ("queue", "consumer", "claim", "start", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    consumer: str
    claim: int
    start: int
    count: int
    def __init__(self, queue: _Optional[str] = ..., consumer: _Optional[str] = ..., claim: _Optional[int] = ..., start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ReadClaimResponse(_message.Message):
    __slots__ = ("deliveries", "total")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Delivery]
    total: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_types_pb2.Delivery, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class ReleaseConsumerRequest(_message.Message):
    __slots__ = ("queue", "consumer")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    consumer: str
    def __init__(self, queue: _Optional[str] = ..., consumer: _Optional[str] = ...) -> None: ...

class ReleaseConsumerResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ListConsumersRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ListConsumersResponse(_message.Message):
    __slots__ = ("consumers",)
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    consumers: _containers.RepeatedCompositeFieldContainer[_types_pb2.ConsumerView]
    def __init__(self, consumers: _Optional[_Iterable[_Union[_types_pb2.ConsumerView, _Mapping]]] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("queue", "sink", "batch", "part", "at", "messages", "wait_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    sink: str
    batch: int
    part: str
    at: int
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.NewMessage]
    wait_ms: int
    def __init__(self, queue: _Optional[str] = ..., sink: _Optional[str] = ..., batch: _Optional[int] = ..., part: _Optional[str] = ..., at: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[_types_pb2.NewMessage, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("queue", "sink", "batch", "parts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    sink: str
    batch: int
    parts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., sink: _Optional[str] = ..., batch: _Optional[int] = ..., parts: _Optional[_Iterable[str]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("count", "was_published")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    count: int
    was_published: bool
    def __init__(self, count: _Optional[int] = ..., was_published: _Optional[bool] = ...) -> None: ...

class ListSinksRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ListSinksResponse(_message.Message):
    __slots__ = ("sinks",)
    SINKS_FIELD_NUMBER: _ClassVar[int]
    sinks: _containers.RepeatedCompositeFieldContainer[_types_pb2.SinkView]
    def __init__(self, sinks: _Optional[_Iterable[_Union[_types_pb2.SinkView, _Mapping]]] = ...) -> None: ...

class DropSinkRequest(_message.Message):
    __slots__ = ("queue", "sink")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    queue: str
    sink: str
    def __init__(self, queue: _Optional[str] = ..., sink: _Optional[str] = ...) -> None: ...

class DropSinkResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...
