"""What producers send and consumers get crosses gRPC with all of its fields."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.transport.grpc_messages import answer_of, message_of
from fairlane.model.message import DeadLetterOrigin, Delivery, FailedAttempt, FailureDetail, NewMessage, Receipt
from fairlane.server.interfaces.grpc_messages import read_enqueue, read_fan_out, read_forward, read_stage, write_leased
from fairlane.verbs.batches import Stage
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward, LeasedMessages
from fairlane.verbs.messages import Enqueue
from fairlane.wire.grpc import batches_pb2, broker_pb2

NEW = NewMessage(
    payload=b"payload",
    headers={"a": "b"},
    fairness_key=("acme", "mobile"),
    weight=2,
    cost=3,
    priority="high",
    throttles=("api", "mail"),
    delay_ms=4,
    deadline_ms=5,
    dedup_id="dedup",
    correlation_id="correlation",
    max_attempts=6,
    visibility_timeout_ms=7,
    result_ttl_ms=8,
    upload="upload",
    order_key="order",
    unique_key="unique",
)
DELIVERY = Delivery(
    id="id",
    queue="orders",
    token=1,
    payload=b"payload",
    headers={"a": "b"},
    fairness_key=("acme", "mobile"),
    attempt=2,
    expires_ms=3,
    enqueued_ms=4,
    correlation_id="correlation",
    cost=5,
    priority="low",
    failures=6,
    state=b"state",
    state_etag="etag",
    errors=(FailedAttempt(7, 8, "failure", "why", FailureDetail(traceback="stack", worker="w", host="h")),),
    dead=DeadLetterOrigin(origin="orders", reason="hook", at_ms=9),
    deadline_ms=10,
    time_left_ms=11,
    payload_size=12,
    order_key="order",
)


def untouched(shape: msgspec.Struct) -> list[str]:
    """Return the fields that have their default, or nothing that could be lost."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(shape)}
    values = {name: getattr(shape, name) for name in defaults}
    return [name for name, value in values.items() if not value or value == defaults[name]]


def crossed(request: Any, verb: str, message: Any) -> Any:
    """Return a protobuf message with a request, from the bytes that a client sends."""
    return type(message).FromString(message_of(verb, request, message).SerializeToString())


def test_the_samples_use_every_field() -> None:
    """The messages that these tests send have no field at its default, so a new field has to be added to them."""
    assert (untouched(NEW), untouched(DELIVERY)) == ([], [])


def test_a_new_message_keeps_every_field() -> None:
    """Each verb that takes new messages reads all of their fields."""
    enqueue = crossed(Enqueue(queue="q", messages=[NEW]), "enqueue", broker_pb2.EnqueueRequest())
    request: Any = read_enqueue("enqueue", enqueue)
    assert request.messages == [NEW]
    stage = Stage(queue="q", sink="s", batch=1, part="p", at=0, messages=[NEW])
    request = read_stage("stage", crossed(stage, "stage", batches_pb2.StageRequest()))
    assert request.messages == [NEW]
    forward = Forward(queue="q", receipt=Receipt("id", 1), messages={"next": [NEW]})
    request = read_forward("forward", crossed(forward, "forward", broker_pb2.ForwardRequest()))
    assert request.messages == {"next": [NEW]}
    fan_out = FanOut(queue="q", name="n", messages={"next": [NEW]}, then=NEW)
    request = read_fan_out("fan_out", crossed(fan_out, "fan_out", broker_pb2.FanOutRequest()))
    assert (request.messages, request.then) == ({"next": [NEW]}, NEW)


def test_a_delivery_keeps_every_field() -> None:
    """A client gets all fields of what it leases."""
    message = broker_pb2.LeaseResponse()
    write_leased(LeasedMessages(deliveries=[DELIVERY]), message)
    answer = answer_of("lease", broker_pb2.LeaseResponse.FromString(message.SerializeToString()))
    assert answer.deliveries == [DELIVERY]
