"""The verbs that are asked most, as the engine takes them: for the faces, and for doors with replies of their own."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.broker.requests import Reply, Request, Waiter
from fairlane.broker.verbs.checking import Leased, check_batch, check_messages, check_taking, require
from fairlane.core import commands
from fairlane.core.checks import whole_fault
from fairlane.model import limits
from fairlane.model.message import NewMessage


def enqueue(queue: str, messages: Sequence[NewMessage], reply: Reply, *, wait_ms: int) -> Request:
    """Return an enqueue. It is answered with an id or an error for each message.

    Raises:
        InvalidArgument: it makes no sense.
    """
    require(whole_fault("wait_ms", wait_ms, least=0, most=limits.TIMESPAN_MS_MAX))
    check_messages(messages)
    return Request(commands.Enqueue(queue=queue, messages=messages), reply, wait_ms)


def lease(
    queue: str,
    count: int,
    reply: Reply,
    *,
    wait_ms: int,
    visibility_ms: int | None,
    owner: str | None,
    with_state: bool,
) -> Waiter:
    """Return one who waits for messages. It is answered with deliveries.

    Raises:
        InvalidArgument: it makes no sense.
    """
    check_taking(count, wait_ms, visibility_ms, owner)
    return Waiter(
        queue=queue,
        count=count,
        reply=reply,
        visibility_ms=visibility_ms,
        owner=owner,
        with_state=with_state,
        wait_ms=wait_ms,
    )


def ack(queue: str, leased: Sequence[Leased], reply: Reply, *, costs: Sequence[int | None] | None) -> Request:
    """Return an ack. It is answered with None or an error for each message.

    Raises:
        InvalidArgument: it makes no sense.
    """
    check_batch(leased)
    return Request(commands.Ack(queue=queue, receipts=leased, costs=costs), reply)  # type: ignore[arg-type] # they have id and token
