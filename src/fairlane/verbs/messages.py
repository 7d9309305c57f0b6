"""Verbs about messages: enqueue and cancel them, look at them, read their workflow state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from fairlane.errors import InvalidArgument
from fairlane.model.bounds import Batch, Numbers
from fairlane.model.message import Became, MessageStatus, MessageView, NewMessage
from fairlane.model.views import DeadLetterFilter, Explained
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.verb import Request, Shape, Verb

ENQUEUE_WAIT_MS: Final = 30_000
"""How long an enqueue waits for capacity by default, where the queue's policy is to wait."""


class EnqueueResult(Shape, frozen=True, kw_only=True):
    """The result for one message: an id or an error.

    Attributes:
        correlation_id: the correlation id of the message; its own id if it was given none. It is missing for a message
            that repeats one by its dedup id if that one has left the queue.
        is_repeat: whether nothing was enqueued, because the message repeats another, whose id this is: by its dedup id,
            or because that one has its unique key and is not done.
    """

    id: str | None = None
    correlation_id: str | None = None
    error: ErrorBody | None = None
    is_repeat: bool = False


class EnqueueResults(Shape, frozen=True, kw_only=True):
    """The result for each message, in order."""

    results: list[EnqueueResult]


@Verb(
    name="enqueue",
    path="queue/enqueue",
    right="produce",
    repeat="deduplicated",
    spread="by_key",
    is_followed=True,
    is_new_work=True,
    may_create=True,
    service="Broker",
    command="enqueue",
)
class Enqueue(Request[EnqueueResults], frozen=True, kw_only=True):
    """Enqueue messages. Each one succeeds or fails separately.

    A producer that numbers its messages may repeat an enqueue whose answer was lost: a message that has been enqueued
    before, within the queue's ``dedup_window_ms``, is answered with the id of the first time.

    Attributes:
        wait_ms: how long to wait for capacity where the queue's policy is to wait; 30 seconds by default.
        producer: a random name of the program that numbers these messages, new for each start.
        numbers: the number of each message among those of its producer, ascending; only that of the first, if the
            others follow it.
    """

    queue: str
    messages: Batch[NewMessage]
    wait_ms: int = ENQUEUE_WAIT_MS
    producer: str | None = None
    numbers: Numbers = ()

    def numbers_of(self, rows: Sequence[int]) -> list[int]:
        """Return the numbers of some messages, in the order of the request.

        Raises InvalidArgument if the request has neither one number for each message nor only the first.
        """
        numbers, count = self.numbers, len(self.messages)
        if len(numbers) == count:
            return [numbers[row] for row in rows]
        if len(numbers) != 1:
            cause = f"The enqueue has {len(numbers)} numbers for {count} messages."
            raise InvalidArgument(f"{cause} Give one for each message, or only that of the first.")
        return [numbers[0] + row for row in rows]

    def number_runs(self) -> list[tuple[int, int]]:
        """Return the numbers as runs that follow each other: the first of each, and how many."""
        if len(self.numbers) < len(self.messages):
            return [(first, len(self.messages)) for first in self.numbers]
        return [(number, 1) for number in self.numbers]

    def of_rows(self, rows: Sequence[int]) -> Enqueue:
        """Return an enqueue of some messages, which keep their numbers."""
        numbers = () if self.producer is None else tuple(self.numbers_of(rows))
        return replace(self, messages=[self.messages[row] for row in rows], numbers=numbers)


class Result(Shape, frozen=True, kw_only=True):
    """The result for one item: empty on success, or an error.

    Attributes:
        expires_ms: for an extended lease, the instant at which it ends.
        became: for a returned message, what became of it: ``waiting``, ``delayed``, ``dead`` or ``expired``.
        correlation_id: the correlation id of the message, unless that is its own id.
    """

    error: ErrorBody | None = None
    expires_ms: int | None = None
    became: Became | None = None
    correlation_id: str | None = None


class Results(Shape, frozen=True, kw_only=True):
    """The result for each item, in order."""

    results: list[Result]


@Verb(name="cancel", path="queue/cancel", right="admin", spread="by_id")
class Cancel(Request[Results], frozen=True, kw_only=True):
    """Remove messages, and revoke the leases of those that are leased. Each one succeeds or fails separately.

    A consumer that holds a cancelled message is told over its stream. Its later calls about the message are refused as
    ``message_cancelled``.

    Attributes:
        reason: why, for the consumer and for operators.
        only_waiting: whether to leave messages alone that are leased, and refuse them as ``not_pending``.
    """

    queue: str
    ids: Batch[str]
    reason: str = ""
    only_waiting: bool = False


@Verb(name="get", path="queue/get", right="consume", repeat="always", spread="by_id", is_look=True)
class GetMessage(Request[MessageView], frozen=True, kw_only=True):
    """Return a message without leasing it.

    Attributes:
        with_body: whether to include payload and headers.
    """

    queue: str
    id: str
    with_body: bool = True


class MessageList(Shape, frozen=True, kw_only=True):
    """Messages, in the order in which they were enqueued."""

    messages: list[MessageView]


@Verb(name="peek", path="queue/peek", right="consume", repeat="always", spread="in_order", is_look=True, command="peek")
class Peek(Request[MessageList], frozen=True, kw_only=True):
    """Return messages without leasing them.

    Attributes:
        count: the most messages to return.
        after: the id of the message after which to begin.
        wanted: which messages to return; mostly useful in a dead-letter queue.
        status: return only messages that wait, that wait for a delay first, or that are leased.
        with_body: whether to include payloads and headers.
    """

    queue: str
    count: int = 10
    after: str | None = None
    wanted: DeadLetterFilter = DeadLetterFilter()
    with_body: bool = False
    status: MessageStatus | None = None


@Verb(name="explain", path="queue/explain", right="observe", repeat="always", spread="by_id", command="explain")
class Explain(Request[Explained], frozen=True, kw_only=True):
    """Explain why a message is waiting."""

    queue: str
    id: str


class WorkflowState(Shape, frozen=True, kw_only=True):
    """Workflow state and its version; both are null if the message has none.

    Attributes:
        correlation_id: the correlation id of the message, unless that is its own id.
    """

    state: bytes | None = None
    etag: str | None = None
    correlation_id: str | None = None


@Verb(
    name="get_state",
    path="queue/state/get",
    right="consume",
    repeat="always",
    spread="by_id",
    is_look=True,
    service="Broker",
    command="state get",
)
class GetState(Request[WorkflowState], frozen=True, kw_only=True):
    """Return the workflow state of a message."""

    queue: str
    id: str
