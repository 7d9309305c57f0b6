from fairlane.wire.grpc import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnqueueRequest(_message.Message):
    __slots__ = ("queue", "messages", "wait_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.NewMessage]
    wait_ms: int
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_types_pb2.NewMessage, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class EnqueueResult(_message.Message):
    __slots__ = ("id", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    error: _types_pb2.Error
    def __init__(self, id: _Optional[str] = ..., error: _Optional[_Union[_types_pb2.Error, _Mapping]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EnqueueResult]
    def __init__(self, results: _Optional[_Iterable[_Union[EnqueueResult, _Mapping]]] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("queue", "count", "wait_ms", "visibility_ms", "owner", "with_state")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WITH_STATE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    count: int
    wait_ms: int
    visibility_ms: int
    owner: str
    with_state: bool
    def __init__(self, queue: _Optional[str] = ..., count: _Optional[int] = ..., wait_ms: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., owner: _Optional[str] = ..., with_state: _Optional[bool] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_types_pb2.Delivery, _Mapping]]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("queue", "receipts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("queue", "receipts", "intent", "error", "delay_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    intent: str
    error: str
    delay_ms: int
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ..., intent: _Optional[str] = ..., error: _Optional[str] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("queue", "receipts", "visibility_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    visibility_ms: int
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class NewMessages(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.NewMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[_types_pb2.NewMessage, _Mapping]]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("queue", "receipt", "messages")
    class MessagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: NewMessages
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[NewMessages, _Mapping]] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipt: _types_pb2.Receipt
    messages: _containers.MessageMap[str, NewMessages]
    def __init__(self, queue: _Optional[str] = ..., receipt: _Optional[_Union[_types_pb2.Receipt, _Mapping]] = ..., messages: _Optional[_Mapping[str, NewMessages]] = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ("queue", "id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("state", "etag")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    etag: str
    def __init__(self, state: _Optional[bytes] = ..., etag: _Optional[str] = ...) -> None: ...

class SetStateRequest(_message.Message):
    __slots__ = ("queue", "receipt", "state", "etag")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipt: _types_pb2.Receipt
    state: bytes
    etag: str
    def __init__(self, queue: _Optional[str] = ..., receipt: _Optional[_Union[_types_pb2.Receipt, _Mapping]] = ..., state: _Optional[bytes] = ..., etag: _Optional[str] = ...) -> None: ...

class SetStateResponse(_message.Message):
    __slots__ = ("etag",)
    ETAG_FIELD_NUMBER: _ClassVar[int]
    etag: str
    def __init__(self, etag: _Optional[str] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("number", "open", "ack", "nack", "extend", "stop")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    number: int
    open: ConsumeOpen
    ack: AckItems
    nack: NackItems
    extend: ExtendItems
    stop: ConsumeStop
    def __init__(self, number: _Optional[int] = ..., open: _Optional[_Union[ConsumeOpen, _Mapping]] = ..., ack: _Optional[_Union[AckItems, _Mapping]] = ..., nack: _Optional[_Union[NackItems, _Mapping]] = ..., extend: _Optional[_Union[ExtendItems, _Mapping]] = ..., stop: _Optional[_Union[ConsumeStop, _Mapping]] = ...) -> None: ...

class ConsumeOpen(_message.Message):
    __slots__ = ("queue", "credit", "visibility_ms", "owner", "with_state")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WITH_STATE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    credit: int
    visibility_ms: int
    owner: str
    with_state: bool
    def __init__(self, queue: _Optional[str] = ..., credit: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., owner: _Optional[str] = ..., with_state: _Optional[bool] = ...) -> None: ...

class AckItems(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    def __init__(self, receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ...) -> None: ...

class NackItems(_message.Message):
    __slots__ = ("receipts", "intent", "error", "delay_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    intent: str
    error: str
    delay_ms: int
    def __init__(self, receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ..., intent: _Optional[str] = ..., error: _Optional[str] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExtendItems(_message.Message):
    __slots__ = ("receipts", "visibility_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[_types_pb2.Receipt]
    visibility_ms: int
    def __init__(self, receipts: _Optional[_Iterable[_Union[_types_pb2.Receipt, _Mapping]]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class ConsumeStop(_message.Message):
    __slots__ = ("unseen", "received")
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    unseen: _containers.RepeatedScalarFieldContainer[str]
    received: int
    def __init__(self, unseen: _Optional[_Iterable[str]] = ..., received: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("number", "deliveries", "results", "refused", "ended")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    number: int
    deliveries: _containers.RepeatedCompositeFieldContainer[_types_pb2.Delivery]
    results: _types_pb2.Results
    refused: _types_pb2.Error
    ended: _types_pb2.Error
    def __init__(self, number: _Optional[int] = ..., deliveries: _Optional[_Iterable[_Union[_types_pb2.Delivery, _Mapping]]] = ..., results: _Optional[_Union[_types_pb2.Results, _Mapping]] = ..., refused: _Optional[_Union[_types_pb2.Error, _Mapping]] = ..., ended: _Optional[_Union[_types_pb2.Error, _Mapping]] = ...) -> None: ...
