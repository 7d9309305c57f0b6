"""Settings of a handler: which messages it takes, how failures end, and when a failed consumer restarts."""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fairlane.errors import InvalidArgument
from fairlane.model.limits import BATCH_MAX, ERROR_LENGTH_MAX
from fairlane.worker.message import WorkMessage
from fairlane.worker.results import DeadLetter, HandlerResult, Retry

Answer: TypeAlias = HandlerResult | None
AsyncHandle: TypeAlias = Callable[[WorkMessage], Awaitable[Answer]]
Handler: TypeAlias = Callable[[Any], Awaitable[Answer]] | Callable[[Any], Answer]
Middleware: TypeAlias = Callable[[WorkMessage, AsyncHandle], Awaitable[Answer]]
Errors: TypeAlias = tuple[type[BaseException], ...]
_NAME_LENGTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerPolicy:
    """How a handler takes messages, and what happens to messages whose handler raises.

    Attributes:
        queue: the queue to consume.
        concurrency: how many messages are handled at the same time; those with a deadline or a throttle, or of a key
            with a cap, are held only up to this number.
        credit: how many messages are held at the same time, including those that wait for a free handler or for the
            answer to their acknowledgement. More speeds up short handlers; less leaves more for other workers.
        visibility_ms: how long a lease lasts; the worker extends it after each third.
        timeout_s: how long a handler may take; None for no limit.
        retries: how many failures are retried before the next one makes a dead letter; None leaves that to the queue's
            policy.
        retry_on: exceptions that are retried; all others make a dead letter.
        dead_letter_on: exceptions that make a dead letter, even if they are in ``retry_on``.
        with_state: whether to fetch the workflow state with each message.
        owner: the name of the consumer, for operators and for what-if; None for ``host:process:handler``.
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
            raise InvalidArgument(
                f"concurrency is {self.concurrency} and credit {self.credit_or_default}; "
                f"expected 1 <= concurrency <= credit <= {BATCH_MAX}."
            )
        if self.visibility_ms < 1 or (self.timeout_s is not None and self.timeout_s <= 0):
            raise InvalidArgument(
                f"visibility_ms is {self.visibility_ms} and timeout_s {self.timeout_s}; both must be greater than 0."
            )

    @property
    def credit_or_default(self) -> int:
        """The number of messages that are held at the same time."""
        return self.credit if self.credit is not None else min(4 * self.concurrency, BATCH_MAX)

    def verdict(self, error: BaseException, message: WorkMessage) -> HandlerResult:
        """Return the result for a message whose handler raised."""
        text = f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
        is_last = self.retries is not None and message.failures >= self.retries
        if is_last or isinstance(error, self.dead_letter_on) or not isinstance(error, self.retry_on):
            return DeadLetter(text)
        return Retry(error=text)


_named: Counter[str] = Counter()


def default_owner(handler: str) -> str:
    """Return a new name for a consumer of this process: ``host:process:handler``, with a number from the second one on.

    So operators see which worker holds a message, and the journal tells consumers apart.
    """
    name = handler[:_NAME_LENGTH]
    _named[name] += 1
    number = f"-{_named[name]}" if _named[name] > 1 else ""
    return f"{socket.gethostname()[:_NAME_LENGTH]}:{os.getpid()}:{name}{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """When a consumer restarts after a failure. A delivery resets the count of failures.

    Attributes:
        immediate: how many restarts happen without a delay.
        first_s: the delay of the next restart.
        factor: by how much the delay grows each time.
        longest_s: the longest delay.
        jitter: the random fraction of a delay, from 0 to 1.
        failures_max: after how many failures in a row the consumer gives up; None for never.
    """

    immediate: int = 1
    first_s: float = 0.25
    factor: float = 2.0
    longest_s: float = 2.0
    jitter: float = 0.25
    failures_max: int | None = None

    def waits_s(self) -> Iterator[float]:
        """Return the delay after each failure; the iterator ends when the consumer has to give up."""
        failures, wait_s = 0, self.first_s
        while self.failures_max is None or failures + 1 < self.failures_max:
            if failures < self.immediate:
                yield 0.0
            else:
                yield wait_s * (1 - self.jitter * random.random())  # noqa: S311 - a delay is no secret
                wait_s = min(wait_s * self.factor, self.longest_s)
            failures += 1
