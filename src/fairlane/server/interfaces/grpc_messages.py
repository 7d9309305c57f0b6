"""Conversions between protobuf and verbs for the hot types: new messages, deliveries, receipts.

``grpc_shapes`` converts any type generically but several times slower. Here each field is touched once, and only if it
is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.errors import InvalidArgument
from fairlane.model.bounds import excess
from fairlane.model.claims import Claimed
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.server.interfaces.grpc_shapes import shaped
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.leases import Ack, LeasedMessages
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Enqueue, EnqueueResults, Results
from fairlane.verbs.verb import Request
from fairlane.wire.protobuf import said, write

# ``Any`` stands for protobuf messages, whose classes only exist at run time.


def read_enqueue(_name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see above
    """Return the request of an enqueue."""
    return Enqueue(
        queue=message.queue,
        messages=news(message.messages),
        wait_ms=message.wait_ms if message.HasField("wait_ms") else ENQUEUE_WAIT_MS,
        producer=message.producer if message.HasField("producer") else None,
        numbers=_numbers(message.numbers) if message.numbers else (),
    )


def _numbers(runs: Iterable[Any]) -> tuple[int, ...]:
    """Return the number of each message, from runs of numbers that follow each other."""
    if sum(run.count for run in runs) > BATCH_MAX:
        raise InvalidArgument(excess("numbers", "BATCH_MAX"))
    return tuple(number for run in runs for number in range(run.first, run.first + run.count))


def read_stage(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see above
    """Return the request of a stage."""
    fields = {field.name: value for field, value in message.ListFields()}
    return shaped(name, fields | {"messages": news(message.messages)})


def news(messages: Iterable[Any]) -> list[NewMessage]:
    """Return new messages."""
    return [_new(message) for message in messages]


def _new(message: Any) -> NewMessage:  # noqa: ANN401 - see above
    has, headers, names, throttles = message.HasField, message.headers, message.fairness_key, message.throttles
    return NewMessage(
        payload=message.payload,
        headers=dict(headers.items()) if headers else {},
        fairness_key=(names[0] if len(names) == 1 else tuple(names)) if names else None,
        weight=message.weight if has("weight") else None,
        cost=message.cost if has("cost") else None,
        priority=message.priority if has("priority") else None,
        throttles=tuple(throttles) if throttles else (),
        delay_ms=message.delay_ms,
        deadline_ms=message.deadline_ms if has("deadline_ms") else None,
        dedup_id=message.dedup_id if has("dedup_id") else None,
        correlation_id=message.correlation_id if has("correlation_id") else None,
        max_attempts=message.max_attempts if has("max_attempts") else None,
        visibility_timeout_ms=message.visibility_timeout_ms if has("visibility_timeout_ms") else None,
        result_ttl_ms=message.result_ttl_ms if has("result_ttl_ms") else None,
        upload=message.upload if has("upload") else None,
        order_key=message.order_key if has("order_key") else None,
        unique_key=message.unique_key if has("unique_key") else None,
    )


def read_forward(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see above
    """Return the request of a forward."""
    messages = {queue: news(group.messages) for queue, group in message.messages.items()}
    return shaped(name, {"queue": message.queue, "receipt": said(message.receipt), "messages": messages})


def read_fan_out(name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see above
    """Return the request of a fan-out."""
    members = {queue: news(group.messages) for queue, group in message.messages.items()}
    given = {"queue": message.queue, "name": message.name, "messages": members, "then": _new(message.then)}
    return shaped(name, given | ({"on_failure": message.on_failure} if message.HasField("on_failure") else {}))


def receipts_of(message: Any) -> list[Receipt]:  # noqa: ANN401 - see above
    """Return the receipts in a request."""
    return [
        Receipt(
            id=each.id,
            token=each.token,
            cost=each.cost if each.HasField("cost") else None,
            result=each.result if each.HasField("result") else None,
        )
        for each in message.receipts
    ]


def read_ack(_name: str, message: Any) -> Request[Any]:  # noqa: ANN401 - see above
    """Return the request of an ack."""
    return Ack(queue=message.queue, receipts=receipts_of(message))


# -------------------------------------------------------------------------------------------------------------- writing


def write_enqueued(answer: EnqueueResults, message: Any) -> None:  # noqa: ANN401 - see above
    """Write the result of each message."""
    add = message.results.add
    for result in answer.results:
        if result.id is not None:
            part = add()
            part.id = result.id
            if result.correlation_id is not None:
                part.correlation_id = result.correlation_id
            if result.is_repeat:
                part.is_repeat = True
        elif result.error is not None:
            write_error(result.error, add().error)


def write_results(answer: Results, message: Any) -> None:  # noqa: ANN401 - see above
    """Write the result of each item."""
    add = message.results.add
    for result in answer.results:
        part = add()
        if result.expires_ms is not None:
            part.expires_ms = result.expires_ms
        if result.became is not None:
            part.became = result.became
        if result.correlation_id is not None:
            part.correlation_id = result.correlation_id
        if result.error is not None:
            write_error(result.error, part.error)


def write_error(error: ErrorBody, message: Any) -> None:  # noqa: ANN401 - see above
    """Write an error."""
    message.code, message.cause, message.remedy = error.code, error.cause, error.remedy
    if error.retry_after_ms is not None:
        message.retry_after_ms = error.retry_after_ms
    if error.at is not None:
        message.at = error.at
    if error.split is not None:
        write(error.split, message.split)


def write_leased(answer: LeasedMessages, message: Any) -> None:  # noqa: ANN401 - see above
    """Write leased messages."""
    write_deliveries(answer.deliveries, message)


def write_claimed(answer: Claimed, message: Any) -> None:  # noqa: ANN401 - see above
    """Write the messages of a claim."""
    message.total = answer.total
    write_deliveries(answer.deliveries, message)


def write_deliveries(deliveries: Iterable[Delivery], message: Any) -> None:  # noqa: ANN401 - see above
    """Write deliveries."""
    add = message.deliveries.add
    for delivery in deliveries:
        _write_delivery(delivery, add())


def _write_delivery(delivery: Delivery, part: Any) -> None:  # noqa: ANN401 - see above
    part.id, part.queue, part.token = delivery.id, delivery.queue, delivery.token
    part.payload = delivery.payload
    part.attempt, part.expires_ms, part.enqueued_ms = delivery.attempt, delivery.expires_ms, delivery.enqueued_ms
    part.correlation_id, part.cost, part.priority = delivery.correlation_id, delivery.cost, delivery.priority
    key = delivery.fairness_key
    if isinstance(key, str):
        part.fairness_key.append(key)
    else:
        part.fairness_key.extend(key)
    if delivery.headers:
        part.headers.update(delivery.headers)
    if delivery.failures:
        part.failures = delivery.failures
    for name in ("state", "state_etag", "deadline_ms", "time_left_ms", "payload_size", "order_key"):
        if (value := getattr(delivery, name)) is not None:
            setattr(part, name, value)
    for error in delivery.errors:
        write(error, part.errors.add())
    if delivery.dead is not None:
        part.dead.SetInParent()
        write(delivery.dead, part.dead)
