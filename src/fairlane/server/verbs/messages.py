"""What messages are asked for: from a request of the wire to the broker and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.errors import FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.model.message import Delivery, MessageView
from fairlane.model.views import Explained
from fairlane.wire import verbs as wire
from fairlane.wire.errors import body_of

_OK: Final = wire.Result()


async def enqueue(broker: AsyncBroker, request: wire.Enqueue, _: Caller) -> wire.Enqueued:
    """Enqueue messages."""
    return enqueued(await broker.enqueue_many(request.queue, request.messages, wait_ms=request.wait_ms))


def enqueued(results: Sequence[str | FairlaneError]) -> wire.Enqueued:
    """Return the answer to an enqueue."""
    return wire.Enqueued(results=[_enqueue_result(result) for result in results])


def _enqueue_result(result: str | FairlaneError) -> wire.EnqueueResult:
    if isinstance(result, str):
        return wire.EnqueueResult(id=result)
    return wire.EnqueueResult(error=body_of(result))


async def lease(broker: AsyncBroker, request: wire.Lease, _: Caller) -> wire.Leased:
    """Lease messages."""
    deliveries = await broker.lease(
        request.queue,
        request.count,
        wait_ms=request.wait_ms,
        visibility_ms=request.visibility_ms,
        owner=request.owner,
        with_state=request.with_state,
    )
    return wire.Leased(deliveries=deliveries)


async def ack(broker: AsyncBroker, request: wire.Ack, _: Caller) -> wire.Results:
    """Let leased messages be done."""
    return acked(await broker.ack_many(request.queue, request.receipts, costs=costs_of(request.receipts)))


def costs_of(receipts: Sequence[wire.Receipt]) -> list[int | None] | None:
    """Return the true cost of each message, None if none is told."""
    return [receipt.cost for receipt in receipts] if any(receipt.cost is not None for receipt in receipts) else None


def acked(outcomes: Sequence[FairlaneError | None]) -> wire.Results:
    """Return the answer to an ack."""
    return _results(outcomes)


def _results(outcomes: Sequence[FairlaneError | None]) -> wire.Results:
    return wire.Results(results=[_OK if error is None else wire.Result(error=body_of(error)) for error in outcomes])


async def forward(broker: AsyncBroker, request: wire.Forward, _: Caller) -> wire.Forwarded:
    """Let a leased message be done and enqueue others."""
    delivery = _held(request.queue, request.receipt)
    ids = await broker.ack(delivery, cost=request.receipt.cost, forward=request.messages)
    return wire.Forwarded(ids=ids)


async def nack(broker: AsyncBroker, request: wire.Nack, _: Caller) -> wire.Results:
    """Give leased messages back."""
    outcomes = await broker.nack_many(
        request.queue, request.receipts, error=request.error, intent=request.intent, delay_ms=request.delay_ms
    )
    return _results(outcomes)


async def extend(broker: AsyncBroker, request: wire.Extend, _: Caller) -> wire.Results:
    """Let leases last longer."""
    outcomes = await broker.extend_many(request.queue, request.receipts, visibility_ms=request.visibility_ms)
    return wire.Results(
        results=[
            wire.Result(expires_ms=outcome) if isinstance(outcome, int) else wire.Result(error=body_of(outcome))
            for outcome in outcomes
        ]
    )


async def cancel(broker: AsyncBroker, request: wire.Cancel, _: Caller) -> wire.Results:
    """Take out messages that are not leased."""
    return _results(await broker.cancel_many(request.queue, request.ids))


async def get(broker: AsyncBroker, request: wire.MessageRequest, _: Caller) -> MessageView:
    """Return a message."""
    return await broker.get(request.queue, request.id, with_body=request.with_body)


async def peek(broker: AsyncBroker, request: wire.Peek, _: Caller) -> wire.Peeked:
    """Return messages without leasing them."""
    messages = await broker.peek(
        request.queue, request.count, after=request.after, wanted=request.wanted, with_body=request.with_body
    )
    return wire.Peeked(messages=messages)


async def explain(broker: AsyncBroker, request: wire.MessageRequest, _: Caller) -> Explained:
    """Tell why a message waits."""
    return await broker.explain(request.queue, request.id)


async def get_state(broker: AsyncBroker, request: wire.MessageRequest, _: Caller) -> wire.State:
    """Return workflow state."""
    state, etag = await broker.get_state(request.queue, request.id)
    return wire.State(state=state, etag=etag)


async def set_state(broker: AsyncBroker, request: wire.SetState, _: Caller) -> wire.Etag:
    """Write workflow state."""
    delivery = _held(request.queue, request.receipt)
    return wire.Etag(etag=await broker.set_state(delivery, request.state, etag=request.etag))


def _held(queue: str, receipt: wire.Receipt) -> Delivery:
    """Return a delivery of which only queue, id and token are true, for verbs that look at nothing else."""
    return Delivery(
        id=receipt.id,
        queue=queue,
        token=receipt.token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=0,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )
