"""What front ends submit to the engine, and how they get their answers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fairlane.broker.waiting.room import Room
from fairlane.core.commands import NOTHING_GIVEN, Command, Given
from fairlane.core.ledger import Message
from fairlane.core.producer import LimitedProducer
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.message import Delivery, Receipt
from fairlane.model.status import StatusView
from fairlane.verbs.status import GetResult, GetStatus
from fairlane.verbs.verb import Reply, Request


class NoReply:
    """A reply for which no caller waits."""

    def done(self) -> bool:
        """Return True: no caller waits."""
        return True

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - see Reply
        """Discard the answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Discard the refusal."""


class AfterRelease:
    """The reply to a consumer that goes: it is answered when the messages that the consumer held are back.

    They go back whether or not the caller waits for that.
    """

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def done(self) -> bool:
        """Return False: the messages are still to go back."""
        return False

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - see Reply
        """Answer that the consumer is gone."""
        del result
        if not self._reply.done():
            self._reply.set_result(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """Refuse, unless the messages are gone with their queue."""
        if isinstance(exception, QueueNotFound):
            self.set_result(None)
        elif not self._reply.done():
            self._reply.set_exception(exception)


@dataclass(slots=True, eq=False)
class Call:
    """A request to decide, and where its answer goes.

    Attributes:
        request: the request, or a command that the broker gives itself.
        reply: where the answer goes; None if the broker asks itself.
        by: the name of the caller, for the journal.
        given: what the decision needs beside the request, as far as it is known.
    """

    request: Request[Any] | Command[Any]
    reply: Reply | None = None
    by: str | None = None
    given: Given = NOTHING_GIVEN


@dataclass(slots=True, eq=False)
class Read:
    """A question about the present. A cycle answers it last, from what is durable by then.

    Attributes:
        is_large: whether the answer has payloads, which take time to read and to encode.
    """

    ask: Callable[[], object]
    reply: Reply
    is_large: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """A consumer that waits for messages, once.

    Attributes:
        count: the most messages it wants.
        handlers: how many of them it can start at once, which limits prompt messages; None for all.
        visibility_ms: how long the leases last; None for the queue's policy.
        until_ms: how long it waits at most, as an instant.
        room: how many bytes its reader can take; None for any number.
        has_columns: whether its reader takes columns of messages (``verbs.columns``).
    """

    queue: str
    count: int
    reply: Reply
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False
    wait_ms: int = 0
    until_ms: int = 0
    is_over: bool = False
    room: Room | None = None
    handlers: int | None = None
    has_columns: bool = False

    @property
    def free(self) -> int:
        """How many prompt messages it can take."""
        return self.count if self.handlers is None else min(self.handlers, self.count)


@dataclass(slots=True, eq=False, kw_only=True)
class StatusWaiter:
    """A caller that asks for the status or the result of a message, or waits for it to change.

    Attributes:
        request: what it asks.
        reader: the caller, if its grants limit what it may know.
        number: the message.
        until_ms: how long it waits at most, as an instant.
        view: what was last known.
    """

    request: GetStatus | GetResult
    reply: Reply
    reader: LimitedProducer | None = None
    number: int = 0
    until_ms: int = 0
    is_over: bool = False
    view: StatusView | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class AttachedConsumer:
    """A consumer that stays, with up to ``credit`` messages in flight.

    The next message is chosen when it is handed out and not before, so a small credit keeps the order fair and a large
    one keeps the consumer busy. Messages beyond its free handlers are prefetched. Prompt messages are not: a message
    with a deadline or a throttle, or of a key with a cap, goes to a free handler only.

    Attributes:
        handlers: how many messages it processes at the same time; None for as many as its credit.
        deliver: called with messages, once their leases are durable; with none when there will be no more.
        on_cancelled: called with the ids of messages that were cancelled while it had them.
        held: what it has in flight: the message's number and its fencing token.
        unseen: of these, what its reader has not received, if it knows; deferred when it ends.
        is_listed: whether it stands in the line of its queue.
        ending: why it ends, if the store goes to another process; it keeps what it has in flight then.
        room: how many bytes its reader can take; None for any number.
        has_columns: whether its reader takes columns of messages (``verbs.columns``).
    """

    queue: str
    credit: int
    deliver: Callable[[list[Delivery]], None]
    visibility_ms: int | None = None
    owner: str | None = None
    with_state: bool = False
    held: dict[int, int] = field(default_factory=dict)
    unseen: Collection[Delivery] = ()
    is_listed: bool = False
    is_closed: bool = False
    ending: FairlaneError | None = None
    room: Room | None = None
    handlers: int | None = None
    on_cancelled: Callable[[list[str]], None] | None = None
    has_columns: bool = False

    @property
    def count(self) -> int:
        """How many messages it can take now."""
        return self.credit - len(self.held)

    @property
    def free(self) -> int:
        """How many prompt messages it can take now."""
        handlers = self.credit if self.handlers is None else min(self.handlers, self.credit)
        return handlers - len(self.held)


@dataclass(slots=True, eq=False)
class Attach:
    """A request to attach a consumer, or with ``is_closing`` to detach it. What it has in flight then goes back.

    Messages that it has not seen when the cycle comes are deferred; for the others the attempt has failed.

    Attributes:
        unseen: messages that it has not seen, besides those it knows of itself.
    """

    consumer: AttachedConsumer
    reply: Reply
    is_closing: bool = False
    unseen: Collection[Delivery] = ()


Submission: TypeAlias = Call | Read | Waiter | StatusWaiter | Attach


@dataclass(slots=True, eq=False)
class HandOut:
    """Messages that were leased to one taker in one cycle; the first under ``token``, the others under the next."""

    taker: Waiter | AttachedConsumer
    messages: list[Message]
    token: int

    def receipts(self) -> list[Receipt]:
        """Return the receipt of each lease."""
        return [Receipt(message.id, at) for at, message in enumerate(self.messages, self.token)]
