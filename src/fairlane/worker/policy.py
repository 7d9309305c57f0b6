"""What is decided about one handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fairlane.errors import InvalidArgument
from fairlane.model.limits import BATCH_MAX, ERROR_LENGTH_MAX
from fairlane.worker.message import WorkMessage
from fairlane.worker.results import DeadLetter, Result, Retry

Answer: TypeAlias = Result | None
AsyncHandle: TypeAlias = Callable[[WorkMessage], Awaitable[Answer]]
Handler: TypeAlias = Callable[[Any], Awaitable[Answer]] | Callable[[Any], Answer]
Middleware: TypeAlias = Callable[[WorkMessage, AsyncHandle], Awaitable[Answer]]
Errors: TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerPolicy:
    """How the messages of one queue are taken, and what becomes of those whose handler raises.

    Attributes:
        queue: where messages come from.
        concurrency: how many are handled at the same time.
        credit: how many are held at the same time, those included that wait here for their turn or for the answer to
            their ack. More makes no-op handlers quicker; less leaves more for other workers to choose from.
        visibility_ms: how long a lease lasts; all that are held are extended each third of it.
        timeout_s: how long a handler may take; None for any time.
        retries: how many failures before the next one makes a dead letter; None leaves that to the queue's policy.
        retry_on: what is retried when raised; anything else makes a dead letter.
        dead_letter_on: what makes a dead letter even so.
        with_state: fetch the workflow state with each message.
        owner: the name the leases are under.
    """

    queue: str
    concurrency: int = 8
    credit: int | None = None
    visibility_ms: int = 30_000
    timeout_s: float | None = None
    retries: int | None = None
    retry_on: Errors = (BaseException,)
    dead_letter_on: Errors = ()
    with_state: bool = False
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1 or not self.concurrency <= self.credit_or_default <= BATCH_MAX:
            raise InvalidArgument(f"1 <= concurrency <= credit <= {BATCH_MAX} does not hold.")
        if self.visibility_ms < 1 or (self.timeout_s is not None and self.timeout_s <= 0):
            raise InvalidArgument("visibility_ms and timeout_s are greater than 0.")

    @property
    def credit_or_default(self) -> int:
        """How many messages are held at the same time."""
        return self.credit if self.credit is not None else min(4 * self.concurrency, BATCH_MAX)

    def verdict(self, error: BaseException, message: WorkMessage) -> Result:
        """Return what becomes of a message whose handler raised."""
        text = f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
        is_last = self.retries is not None and message.failures >= self.retries
        if is_last or isinstance(error, self.dead_letter_on) or not isinstance(error, self.retry_on):
            return DeadLetter(text)
        return Retry(error=text)
