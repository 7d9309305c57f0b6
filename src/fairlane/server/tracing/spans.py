"""The protocol between interfaces and tracing. Without tracing, interfaces have no ``Spans`` and skip it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlane.errors import FairlaneError
from fairlane.gateway.context import CallContext
from fairlane.model.message import Delivery
from fairlane.server.dispatch import Answer
from fairlane.verbs.verb import Shape


class CallSpan(Protocol):
    """The span of a call."""

    def done(self, answer: Answer) -> None:
        """Record the answer."""

    def refused(self, error: FairlaneError) -> None:
        """Record an error."""

    def end(self) -> None:
        """End the span, whether the call was answered or not."""


class Spans(Protocol):
    """Records spans. It must never raise and never wait."""

    def begin(self, verb: str, request: Shape, origin: CallContext | None) -> CallSpan:
        """Start the span of a call."""

    def delivered(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Record a span for messages that are sent to a streaming consumer."""
