"""Messages for tests of handlers, and the verdict of a worker about them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from fairlane.errors import MessageNotFound, QueueNotFound
from fairlane.model.message import Delivery, FailedAttempt, Key, NewMessage, PriorityName
from fairlane.model.payloads import NO_VALUE, NoValue
from fairlane.verbs.methods.conversions import Held, message_of
from fairlane.verbs.uploads import PayloadRange
from fairlane.worker.app import Worker
from fairlane.worker.consumer import wrapped
from fairlane.worker.message import RUNNING, WorkMessage
from fairlane.worker.results import HandlerResult, result_of
from fairlane.worker.threads import HandlerThreads

_EXPIRES_MS = 253_402_300_799_000
_ID = "00000000-0000-8001-8000-000000000001"


class MessageDetails(TypedDict, total=False):
    """What a message for a test may have beside its payload; see ``Delivery``."""

    id: str
    headers: Mapping[str, str]
    fairness_key: Key
    attempt: int
    failures: int
    errors: tuple[FailedAttempt, ...]
    priority: PriorityName
    cost: int
    state: bytes | None
    correlation_id: str
    enqueued_ms: int
    deadline_ms: int | None


class MemoryState:
    """Keeps the workflow state of messages for a test."""

    def __init__(self) -> None:
        self._writes = 0

    async def set_state(self, message: Held, state: bytes | None, *, etag: str | None) -> str | None:  # noqa: ARG002 - see StateWriter
        """Accept a state, and return a new etag."""
        self._writes += 1
        return None if state is None else str(self._writes)

    async def report_progress(self, message: Held, fraction: float | None = None, *, note: str = "") -> None:
        """Accept a report."""

    async def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Raise an error: the payload of a message for a test is with it."""
        raise MessageNotFound(f"Message {message_id} of queue {queue!r} has no payload at {offset}, {token}, {count}.")


def make_message(
    message: NewMessage | bytes | NoValue = NO_VALUE,
    *,
    queue: str = "default",
    json: object = NO_VALUE,
    **details: Unpack[MessageDetails],
) -> WorkMessage:
    """Return a leased message as a handler gets it, without a broker.

    Give it a payload, ``json=VALUE``, or what ``task.message(...)`` returns.
    """
    given = message_of(b"" if message is NO_VALUE and json is NO_VALUE else message, json, {})
    fields: dict[str, Any] = {
        "id": _ID,
        "headers": dict(given.headers),
        "fairness_key": given.fairness_key or "default",
        "priority": given.priority or "normal",
        "cost": given.cost or 1,
        "attempt": 1,
        "failures": details.get("attempt", 1) - 1,
        "correlation_id": given.correlation_id or details.get("id", _ID),
        "enqueued_ms": 0,
    } | dict(details)
    delivery = Delivery(queue=queue, token=1, payload=given.payload, expires_ms=_EXPIRES_MS, **fields)
    return WorkMessage(delivery, MemoryState(), now_s=0.0, due_s=float("inf"))


def verdict(app: Worker, message: WorkMessage) -> HandlerResult:
    """Return what a worker would do with a message: run its handler with middleware, and apply the handler's policy.

    Call it from a test without a running event loop.

    Raises:
        QueueNotFound: the app has no handler or task for the queue of the message.
    """
    return asyncio.run(_verdict(app, message))


async def _verdict(app: Worker, message: WorkMessage) -> HandlerResult:
    handler = next((each for each in app.handlers if each.policy.queue == message.queue), None)
    if handler is None:
        raise QueueNotFound(f"The app has no handler for queue {message.queue!r}; it has {', '.join(app.queues)}.")

    async def ignore(_: WorkMessage) -> None:
        return None

    threads = HandlerThreads(handler.policy, ignore)
    kind = handler.kind_of(message.delivery)
    handled = kind(message.delivery, MemoryState(), now_s=0.0, due_s=float("inf"))
    handled.phase = RUNNING
    try:
        return result_of(await wrapped(handler.handle(threads), app.layers)(handled))
    except Exception as error:  # noqa: BLE001 - the policy of the handler judges it
        return handler.policy_of(handled).verdict(error, handled)
    finally:
        threads.close()
