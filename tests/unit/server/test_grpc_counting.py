"""Large protobuf messages are counted before they are parsed."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from fairlane.errors import InvalidArgument
from fairlane.model import limits
from fairlane.server.interfaces.grpc_counting import WALKED_FROM_BYTES, check_items
from fairlane.server.interfaces.grpc_server import ADMIN, BATCHES, BROKER
from fairlane.wire.grpc import admin_pb2, broker_pb2, types_pb2
from tests.unit.server.grpc_client import called, refused
from tests.unit.server.local_server import run

FILLER = b"x" * WALKED_FROM_BYTES
METHODS = [method for service in (BROKER, ADMIN, BATCHES) for method in service.methods]


def fault(message: object, more: bytes = b"") -> str:
    """Return why a message is refused; it is made large enough to be walked."""
    data = message.SerializeToString() + more  # type: ignore[attr-defined]  # it is a protobuf message
    with pytest.raises(InvalidArgument) as caught:
        check_items(type(message), data, "enqueue")  # type: ignore[arg-type]  # see above
    return caught.value.cause


def large() -> types_pb2.NewMessage:
    """Return a message that is large enough for its request to be walked."""
    return types_pb2.NewMessage(payload=FILLER)


def test_messages_are_counted_without_building_one() -> None:
    """A request of empty messages is refused by its tags alone: it is never parsed."""
    assert fault(broker_pb2.EnqueueRequest(queue="q"), b"\x12\x00" * 40_000).startswith(
        "messages has more than BATCH_MAX (10000) items."
    )


def test_lists_inside_messages_are_counted() -> None:
    """Headers, throttles and the names of a key are bounded in each message, and headers in all of them."""
    request = broker_pb2.EnqueueRequest(queue="q", messages=[large()])
    request.messages.add(throttles=["t"] * 17)
    assert fault(request).startswith("messages[1].throttles has more than THROTTLES_MAX (16) items.")
    request.messages[1].CopyFrom(types_pb2.NewMessage(fairness_key=["t"] * 9))
    assert fault(request).startswith("messages[1].fairness_key has more than KEY_DEPTH_MAX (8) items.")
    headers = {str(number): "" for number in range(128)}
    request.messages[1].CopyFrom(types_pb2.NewMessage(headers=headers | {"one": "more"}))
    assert fault(request).startswith("messages[1].headers has more than HEADERS_MAX (128) items.")
    many = broker_pb2.EnqueueRequest(queue="q", messages=[types_pb2.NewMessage(headers=headers)] * 800)
    assert fault(many).startswith("headers of all messages has more than BATCH_HEADERS_MAX (100000) items.")


def test_maps_and_nested_requests_are_counted() -> None:
    """The queues of a forward, the messages of each of them, and the keys of a policy are bounded."""
    forward = broker_pb2.ForwardRequest(queue="q")
    for number in range(17):
        forward.messages[str(number)].messages.add(payload=FILLER)
    assert fault(forward).startswith("messages has more than FORWARD_QUEUES_MAX (16) items.")
    forward = broker_pb2.ForwardRequest(queue="q")
    forward.messages["a"].messages.extend([types_pb2.NewMessage()] * 40_000)
    assert fault(forward).startswith("messages[0].value.messages has more than BATCH_MAX (10000) items.")
    create = admin_pb2.CreateQueueRequest(queue="q")
    create.policy.weights.update({str(number): 1 for number in range(10_001)})
    assert fault(create).startswith("policy.weights has more than BATCH_MAX (10000) items.")
    twice = admin_pb2.CreateQueueRequest(queue="q").SerializeToString() + b"\x12\x00\x12\x00"
    assert fault(admin_pb2.CreateQueueRequest(group="x" * WALKED_FROM_BYTES), twice) == "policy is given twice."


def test_a_field_that_is_given_again_and_again_is_refused_after_a_few() -> None:
    """The walk takes a hundred times as long as the parser for each tag, so it ends early, wherever they are."""
    cause = "Invalid enqueue request: it has a fairlane.v1.{} that gives a field again and again. Send each field once."
    for tag in (b"\x18\x00", b"\x0a\x00", b"\x82\x7d\x00", b"\x1d\x00\x00\x00\x00"):
        assert fault(broker_pb2.EnqueueRequest(queue="q"), tag * 40_000) == cause.format("EnqueueRequest")
    inner = b"\x40\x00" * 40_000
    for kind, tag in ((broker_pb2.EnqueueRequest, b"\x12"), (broker_pb2.FanOutRequest, b"\x1a")):
        assert fault(kind(), tag + b"\x80\xf1\x04" + inner) == cause.format("NewMessage")


def test_the_messages_of_all_queues_together_are_counted() -> None:
    """The queues of a forward share one limit, so the walk ends there too."""
    forward = broker_pb2.ForwardRequest(queue="q")
    for number in range(12):
        forward.messages[str(number)].messages.extend([large()] + [types_pb2.NewMessage(weight=1)] * 1_000)
    assert fault(forward).startswith("messages has more than BATCH_MAX (10000) items.")


def test_a_full_batch_passes() -> None:
    """What all limits allow is parsed."""
    message = types_pb2.NewMessage(
        payload=b"x" * 200, headers={"a": "b"}, fairness_key=["a", "b"], weight=300, dedup_id="x", throttles=["t"] * 16
    )
    fan_out = broker_pb2.FanOutRequest(queue="q", name="n", then=message)
    fan_out.messages["q"].messages.extend([message] * limits.BATCH_MAX)
    check_items(broker_pb2.FanOutRequest, fan_out.SerializeToString(), "fan_out")
    request = broker_pb2.EnqueueRequest(queue="q", messages=[message] * limits.BATCH_MAX, wait_ms=2**40)
    check_items(broker_pb2.EnqueueRequest, request.SerializeToString(), "enqueue")


@pytest.mark.parametrize(
    "data",
    [b"\x13", b"\x0a\xff\xff\xff\xff\x7f", b"\x12", b"\x0a" + b"\xff" * 12, b"\x08"],
    ids=lambda data: data.hex(),
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    """A group, lengths that lie and numbers that do not end are invalid, not errors of ours."""
    cause = fault(broker_pb2.EnqueueRequest(queue="q", messages=[large()]), data)
    assert cause == "Invalid enqueue request: the bytes are not a fairlane.v1.EnqueueRequest."


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_repeated_field_of_a_request_can_be_counted(method: object) -> None:
    """A list of numbers could be packed, and the walk would not see its items: no request has one."""
    kinds, seen = [GetMessageClass(method.input_type).DESCRIPTOR], set()  # type: ignore[attr-defined]  # a descriptor
    while kinds:
        kind = kinds.pop()
        seen.add(kind.full_name)
        for field in kind.fields:
            if field.message_type is not None and field.message_type.full_name not in seen:
                kinds.append(field.message_type)
            packable = field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
            assert not (field.is_repeated and field.message_type is None and packable), field.full_name


def test_a_call_with_too_many_items_is_refused_with_the_words_of_http() -> None:
    """Over gRPC the caller gets invalid_argument with the field and the limit."""

    async def main() -> None:
        async with called() as caller:
            data = broker_pb2.EnqueueRequest(queue="orders").SerializeToString() + b"\x12\x00" * 40_000
            error = await refused(caller.raw("/fairlane.v1.Broker/Enqueue", data))
            assert (error.details() or "").startswith("messages has more than BATCH_MAX (10000) items.")

    run(main())
