"""Hooks: the questions for user scripts, and the protocol of what runs them.

A hook answers before the core decides. Its answer is part of the command and of the record, so neither recovery nor
simulation ever runs a script. A hook that fails gives no answer, and the queue's declared keys apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.histogram import Histogram
from fairlane.model.hook_limits import NO_HOOK_LIMITS, HookLimits
from fairlane.model.views import HookStatistics, HookTrial

UNLIMITED_NS: Final = 1 << 62
"""More script time than any script takes."""


class EnqueueQuestion(msgspec.Struct, frozen=True):
    """The input of ``on_enqueue`` for one message."""

    headers: Mapping[str, str]
    payload_size: int


class FailureQuestion(msgspec.Struct, frozen=True):
    """The input of ``on_failure`` for one attempt that failed or was lost.

    Attributes:
        attempts: how many attempts have failed or were lost, including this one.
        reason: ``failure``, ``expiry`` or ``release``.
    """

    headers: Mapping[str, str]
    id: str
    attempts: int
    error: str
    reason: str = "failure"


class Hooks(Protocol):
    """Runs the scripts of queues, each in a sandbox of its own. It never raises because of what a script does."""

    @property
    def spent_ns(self) -> int:
        """The time that scripts have used so far, with checks, trials and compiling."""

    def check(
        self, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> str | None:
        """Return why these scripts cannot be set under these limits, or None if they can. Changes nothing."""

    def set(
        self, queue: str, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> None:
        """Set the scripts of a queue, which ``check`` has accepted. Its breaker closes and its counts continue."""

    def remove(self, queue: str) -> None:
        """Forget a queue and its scripts."""

    def on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int, *, most_ns: int = UNLIMITED_NS
    ) -> list[EnqueueAnswer | None] | None:
        """Run the script for messages, for about ``most_ns`` at most, and for one message at least.

        Return an answer or None for each message so far, which may be fewer than were asked about, or None if the queue
        has no such script.
        """

    def on_failure(self, queue: str, question: FailureQuestion, now_ms: int) -> FailureAnswer | None:
        """Run the script for an attempt that failed or was lost. Return None if there is no script or no answer."""

    def try_on_enqueue(self, queue: str, script: str, question: EnqueueQuestion) -> HookTrial:
        """Run a script on a sample, in a temporary sandbox."""

    def try_on_failure(self, queue: str, script: str, question: FailureQuestion) -> HookTrial:
        """Run a script on a sample, in a temporary sandbox."""

    def statistics(self, queue: str, now_ms: int) -> HookStatistics:
        """Return the counts of a queue, and whether its breaker is open now."""

    def timings(self, queue: str) -> Histogram:
        """Return the distribution of seconds per message; messages of one batch count with their mean."""
