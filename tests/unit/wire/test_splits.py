"""How a queue is split, as it travels: in an error, and in the view of a cluster; as JSON, msgpack and protobuf."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fairlane.errors import FairlaneError, QueueSplit
from fairlane.model.partitions import Split
from fairlane.model.views import ClusterView
from fairlane.server.interfaces.grpc_messages import write_error
from fairlane.verbs.errors import ErrorBody, body_of, error_of
from fairlane.wire.grpc import admin_pb2, types_pb2
from fairlane.wire.protobuf import told, write

SPLITS = {
    "orders": Split(partitions=2, made=3, by_message=False),
    "mail": Split(partitions=4, made=4, by_message=True),
}


def _by_protobuf(body: ErrorBody) -> ErrorBody:
    message = types_pb2.Error()
    write_error(body, message)
    read = types_pb2.Error.FromString(message.SerializeToString())
    return msgspec.convert(told(read), ErrorBody)


@pytest.mark.parametrize(
    "sent",
    [
        lambda body: msgspec.json.decode(msgspec.json.encode(body), type=ErrorBody),
        lambda body: msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=ErrorBody),
        _by_protobuf,
    ],
    ids=["json", "msgpack", "protobuf"],
)
def test_the_error_of_a_split_queue_tells_how_it_is_split(sent: Callable[[ErrorBody], ErrorBody]) -> None:
    """Whoever gets it knows which partitions to ask, whatever it came by."""
    error: FairlaneError = QueueSplit("It is split.", partitions=2, made=3, by_message=False)
    found = error_of(sent(body_of(error)))
    assert isinstance(found, QueueSplit)
    assert (found.cause, found.partitions, found.made, found.by_message) == ("It is split.", 2, 3, False)


def test_other_errors_say_nothing_of_partitions() -> None:
    """Their bodies have no field more than they had."""
    body = ErrorBody(code="closed", cause="c", remedy="r")
    assert msgspec.json.encode(body) == b'{"code":"closed","cause":"c","remedy":"r"}'
    assert _by_protobuf(body) == body


def test_a_cluster_tells_its_splits_by_protobuf_too() -> None:
    """A map of messages is written and read as one of the wire's shapes."""
    view = ClusterView(node="a", nodes=[], groups=[], splits=SPLITS)
    message = admin_pb2.GetClusterResponse()
    write(view, message)
    read = admin_pb2.GetClusterResponse.FromString(message.SerializeToString())
    assert msgspec.convert(told(read), ClusterView) == view
