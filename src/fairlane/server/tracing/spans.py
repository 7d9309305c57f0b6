"""What doors tell of each call, for those who trace. Without anybody who does, they ask for None and go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlane.errors import FairlaneError
from fairlane.gateway.context import CallContext
from fairlane.model.message import Delivery
from fairlane.server.dispatch import Answer
from fairlane.verbs.verb import Shape


class CallSpan(Protocol):
    """A call that is being answered."""

    def done(self, answer: Answer) -> None:
        """Learn what was answered."""

    def refused(self, error: FairlaneError) -> None:
        """Learn that it was refused."""

    def end(self) -> None:
        """Learn that it is over, answered or not."""


class Spans(Protocol):
    """Whoever keeps spans. It must never raise, and never wait."""

    def begin(self, verb: str, request: Shape, origin: CallContext | None) -> CallSpan:
        """Begin the span of a call."""

    def delivered(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Keep a span for messages that are sent to a consumer that stays."""
