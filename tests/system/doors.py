"""The three doors of a server, asked alike: each verb by name with a plain request, as anybody's client would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import grpc
import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from websockets.exceptions import InvalidStatus

from fairlane.verbs.table import METHODS as VERB_BY_METHOD
from fairlane.verbs.table import VERBS
from fairlane.wire.grpc import admin_pb2, batches_pb2, broker_pb2
from tests.kit.waiting import PATIENCE_S

from .grpc_process import GrpcServer
from .server_process import HttpAnswer, ServerProcess


class Outcome(msgspec.Struct, frozen=True):
    """What came of a call: a code, which is ``ok`` where it was not refused, the door's status, and the answer."""

    code: str
    status: object = None
    answer: Any = None


class Door(Protocol):
    """One way in."""

    name: str

    def ask(self, verb: str, request: dict[str, Any], *, key: str | None = None) -> Outcome:
        """Ask a verb with a key, or without one."""

    def close(self) -> None:
        """Hang up."""


def bearer(key: str | None) -> dict[str, str]:
    """Return the header that shows a key."""
    return {} if key is None else {"authorization": f"Bearer {key}"}


class HttpInterface:
    """Requests of JSON."""

    name = "http"

    def __init__(self, server: ServerProcess) -> None:
        self._http = server.http()

    def ask(self, verb: str, request: dict[str, Any], *, key: str | None = None) -> Outcome:
        """Post a request."""
        answer = self._http.post(f"/{VERBS[verb].path}", json=request, headers=bearer(key))
        return outcome_of(answer)

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def outcome_of(answer: HttpAnswer) -> Outcome:
    """Return what came of a request over HTTP."""
    body = answer.json()
    return Outcome("ok" if answer.is_success else body["error"]["code"], answer.status_code, body)


class StreamDoor:
    """Frames of msgpack on a WebSocket, a new one for each call."""

    name = "stream"

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def ask(self, verb: str, request: dict[str, Any], *, key: str | None = None) -> Outcome:
        """Connect, call and hang up."""
        try:
            stream = self._server.stream(additional_headers=bearer(key))
        except InvalidStatus as refused:
            body = msgspec.json.decode(refused.response.body or b"")
            return Outcome(body["error"]["code"], refused.response.status_code, body)
        with stream:
            number = stream.send(verb, **request)
            kind, answered, answer = stream.frame()
            assert answered == number
            return Outcome("ok", None, answer) if kind == 1 else Outcome(answer["code"], None, answer)

    def close(self) -> None:
        """Do nothing: every call hangs up itself."""


METHODS: Mapping[str, Any] = {
    VERB_BY_METHOD[method.name].name: method
    for file in (broker_pb2, admin_pb2, batches_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name in VERB_BY_METHOD
}
"""The descriptor of the method behind each verb."""


class GrpcInterface:
    """Calls of gRPC."""

    name = "grpc"

    def __init__(self, server: GrpcServer) -> None:
        self._channel = grpc.insecure_channel(server.grpc_address)

    def ask(self, verb: str, request: dict[str, Any], *, key: str | None = None) -> Outcome:
        """Call a method."""
        method = METHODS[verb]
        message = ParseDict(_in_protobuf(verb, request), GetMessageClass(method.input_type)())
        call: Any = self._channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
        metadata = tuple(bearer(key).items())
        try:
            data = call(message.SerializeToString(), metadata=metadata, timeout=PATIENCE_S)
        except grpc.RpcError as refused:
            error: Any = refused
            return Outcome(dict(error.trailing_metadata())["fairlane-code"], error.code().name)
        answer = GetMessageClass(method.output_type)()
        answer.ParseFromString(data)
        return Outcome("ok", "OK", MessageToDict(answer, preserving_proto_field_name=True))

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


def _in_protobuf(verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as protobuf says it: keys are lists, and what is grouped has a name."""
    if verb in ("enqueue", "stage"):
        return request | {"messages": [_keyed(message) for message in request["messages"]]}
    if verb in ("forward", "fan_out"):
        groups = {queue: {"messages": [_keyed(each) for each in news]} for queue, news in request["messages"].items()}
        return request | {"messages": groups} | ({"then": _keyed(request["then"])} if "then" in request else {})
    return request


def _keyed(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"fairness_key": [message["fairness_key"]]} if "fairness_key" in message else message
