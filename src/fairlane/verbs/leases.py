"""Verbs about leases: take messages, and acknowledge, forward, return or keep them."""

from __future__ import annotations

from typing import Literal

from fairlane.model.bounds import Batch, ByQueue
from fairlane.model.message import Delivery, FailureDetail, NewMessage, Receipt
from fairlane.verbs.messages import Results
from fairlane.verbs.verb import Request, Shape, Verb

NackIntent = Literal["failure", "defer", "dead"]


class LeasedMessages(Shape, frozen=True, kw_only=True):
    """The leased messages; empty if none became available in time."""

    deliveries: list[Delivery]


@Verb(
    name="lease",
    path="queue/lease",
    aliases={"queue/dequeue": {}, "queue/dequeueWithState": {"with_state": True}},
    right="consume",
    # The messages of a lost answer return to the queue when their leases end.
    repeat="always",
    spread="any",
    is_followed=True,
    is_new_work=True,
    may_create=True,
    service="Broker",
    command="lease",
)
class Lease(Request[LeasedMessages], frozen=True, kw_only=True):
    """Lease messages in fair order.

    Attributes:
        count: the most messages to lease.
        wait_ms: how long to wait for the first message.
        visibility_ms: how long the leases last; the visibility timeout of the message or the queue by default.
        owner: the name of the consumer, for operators.
        with_state: whether to include the workflow state of each message.
        handlers: how many of the messages can start at once, which limits those with a deadline or a throttle or of a
            key with a cap; null for all.
    """

    queue: str
    count: int = 1
    wait_ms: int = 0
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False
    handlers: int | None = None


@Verb(name="ack", path="queue/ack", right="consume", spread="by_id", is_followed=True, service="Broker", command="ack")
class Ack(Request[Results], frozen=True, kw_only=True):
    """Acknowledge leased messages. Each one succeeds or fails separately."""

    queue: str
    receipts: Batch[Receipt]


class ForwardedIds(Shape, frozen=True, kw_only=True):
    """The ids of the messages that were enqueued, in order.

    Attributes:
        correlation_id: the correlation id of the acknowledged message, unless that is its own id.
    """

    ids: list[str]
    correlation_id: str | None = None


@Verb(name="forward", path="queue/forward", right="consume", is_new_work=True, service="Broker")
class Forward(Request[ForwardedIds], frozen=True, kw_only=True):
    """Acknowledge a leased message and enqueue others, in one commit or not at all.

    The others inherit the correlation id, the fairness key and the trace of the acknowledged message, each unless they
    have their own.

    Attributes:
        messages: the messages to enqueue, by queue.
    """

    queue: str
    receipt: Receipt
    messages: ByQueue[Batch[NewMessage]]


@Verb(
    name="nack", path="queue/nack", right="consume", spread="by_id", is_followed=True, service="Broker", command="nack"
)
class Nack(Request[Results], frozen=True, kw_only=True):
    """Return leased messages to their queue. Each one succeeds or fails separately.

    Attributes:
        intent: ``failure`` counts as a failed attempt, ``defer`` does not, ``dead`` moves to the dead-letter queue.
        error: what went wrong, for operators.
        delay_ms: how long the messages wait before they can be leased again; the queue's backoff by default.
        detail: where and how it went wrong, for operators.
    """

    queue: str
    receipts: Batch[Receipt]
    intent: NackIntent = "failure"
    error: str = ""
    delay_ms: int | None = None
    detail: FailureDetail | None = None


@Verb(
    name="extend",
    path="queue/extend",
    right="consume",
    repeat="always",
    spread="by_id",
    is_followed=True,
    service="Broker",
    command="extend",
)
class Extend(Request[Results], frozen=True, kw_only=True):
    """Renew leases. Each one succeeds or fails separately.

    Attributes:
        visibility_ms: how long the leases last from now; the visibility timeout of the message or the queue by default.
    """

    queue: str
    receipts: Batch[Receipt]
    visibility_ms: int | None = None


class Etag(Shape, frozen=True, kw_only=True):
    """The version of the workflow state after the write; null if the state was removed.

    Attributes:
        correlation_id: the correlation id of the message, unless that is its own id.
    """

    etag: str | None = None
    correlation_id: str | None = None


@Verb(name="set_state", path="queue/state/put", right="consume", spread="by_id", service="Broker", command="state put")
class SetState(Request[Etag], frozen=True, kw_only=True):
    """Write the workflow state of a leased message if its version is still ``etag``.

    Attributes:
        state: the new state; null removes it.
        etag: the version that must be current; null if there must be no state.
    """

    queue: str
    receipt: Receipt
    state: bytes | None = None
    etag: str | None = None
