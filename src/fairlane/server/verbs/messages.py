"""What messages are asked for: from a request of the wire to the broker and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.errors import FairlaneError
from fairlane.gateway.caller import Caller
from fairlane.model.message import Delivery, MessageView, Receipt
from fairlane.model.views import Explained
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Ack, Etag, Extend, Forward, ForwardedIds, Lease, LeasedMessages, Nack, SetState
from fairlane.verbs.messages import (
    Cancel,
    Enqueue,
    EnqueueResult,
    EnqueueResults,
    Explain,
    GetMessage,
    GetState,
    MessageList,
    Peek,
    Result,
    Results,
    WorkflowState,
)

_OK: Final = Result()


async def enqueue(broker: AsyncBroker, request: Enqueue, _: Caller) -> EnqueueResults:
    """Enqueue messages."""
    return enqueued(await broker.enqueue_many(request.queue, request.messages, wait_ms=request.wait_ms))


def enqueued(results: Sequence[str | FairlaneError]) -> EnqueueResults:
    """Return the answer to an enqueue."""
    return EnqueueResults(results=[_enqueue_result(result) for result in results])


def _enqueue_result(result: str | FairlaneError) -> EnqueueResult:
    if isinstance(result, str):
        return EnqueueResult(id=result)
    return EnqueueResult(error=body_of(result))


async def lease(broker: AsyncBroker, request: Lease, _: Caller) -> LeasedMessages:
    """Lease messages."""
    deliveries = await broker.lease(
        request.queue,
        request.count,
        wait_ms=request.wait_ms,
        visibility_ms=request.visibility_ms,
        owner=request.owner,
        with_state=request.with_state,
    )
    return LeasedMessages(deliveries=deliveries)


async def ack(broker: AsyncBroker, request: Ack, _: Caller) -> Results:
    """Let leased messages be done."""
    return acked(await broker.ack_many(request.queue, request.receipts, costs=costs_of(request.receipts)))


def costs_of(receipts: Sequence[Receipt]) -> list[int | None] | None:
    """Return the true cost of each message, None if none is told."""
    return [receipt.cost for receipt in receipts] if any(receipt.cost is not None for receipt in receipts) else None


def acked(outcomes: Sequence[FairlaneError | None]) -> Results:
    """Return the answer to an ack."""
    return _results(outcomes)


def _results(outcomes: Sequence[FairlaneError | None]) -> Results:
    return Results(results=[_OK if error is None else Result(error=body_of(error)) for error in outcomes])


async def forward(broker: AsyncBroker, request: Forward, _: Caller) -> ForwardedIds:
    """Let a leased message be done and enqueue others."""
    delivery = _held(request.queue, request.receipt)
    ids = await broker.ack(delivery, cost=request.receipt.cost, forward=request.messages)
    return ForwardedIds(ids=ids)


async def nack(broker: AsyncBroker, request: Nack, _: Caller) -> Results:
    """Give leased messages back."""
    outcomes = await broker.nack_many(
        request.queue, request.receipts, error=request.error, intent=request.intent, delay_ms=request.delay_ms
    )
    return _results(outcomes)


async def extend(broker: AsyncBroker, request: Extend, _: Caller) -> Results:
    """Let leases last longer."""
    outcomes = await broker.extend_many(request.queue, request.receipts, visibility_ms=request.visibility_ms)
    return Results(
        results=[
            Result(expires_ms=outcome) if isinstance(outcome, int) else Result(error=body_of(outcome))
            for outcome in outcomes
        ]
    )


async def cancel(broker: AsyncBroker, request: Cancel, _: Caller) -> Results:
    """Take out messages that are not leased."""
    return _results(await broker.cancel_many(request.queue, request.ids))


async def get(broker: AsyncBroker, request: GetMessage, _: Caller) -> MessageView:
    """Return a message."""
    return await broker.get(request.queue, request.id, with_body=request.with_body)


async def peek(broker: AsyncBroker, request: Peek, _: Caller) -> MessageList:
    """Return messages without leasing them."""
    messages = await broker.peek(
        request.queue, request.count, after=request.after, wanted=request.wanted, with_body=request.with_body
    )
    return MessageList(messages=messages)


async def explain(broker: AsyncBroker, request: Explain, _: Caller) -> Explained:
    """Tell why a message waits."""
    return await broker.explain(request.queue, request.id)


async def get_state(broker: AsyncBroker, request: GetState, _: Caller) -> WorkflowState:
    """Return workflow state."""
    state, etag = await broker.get_state(request.queue, request.id)
    return WorkflowState(state=state, etag=etag)


async def set_state(broker: AsyncBroker, request: SetState, _: Caller) -> Etag:
    """Write workflow state."""
    delivery = _held(request.queue, request.receipt)
    return Etag(etag=await broker.set_state(delivery, request.state, etag=request.etag))


def _held(queue: str, receipt: Receipt) -> Delivery:
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
