"""Numbers for messages, so that the broker recognises an enqueue that a client repeats."""

from __future__ import annotations

import secrets

import msgspec

from fairlane.verbs.messages import Enqueue


class MessageNumbering:
    """Numbers the messages of one producer. Requests that are numbered here are sent from one thread at a time."""

    def __init__(self) -> None:
        self._producer = secrets.token_urlsafe(12)
        self._next = 0

    def numbered(self, request: Enqueue) -> Enqueue:
        """Return an enqueue with the numbers that make it safe to repeat, unless dedup ids do."""
        messages = request.messages
        if request.producer is not None or all(message.dedup_id for message in messages):
            return request
        first = self._next
        self._next += len(messages)
        return msgspec.structs.replace(request, producer=self._producer, numbers=(first,))
