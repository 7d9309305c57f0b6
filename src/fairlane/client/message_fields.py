"""The fields of a leased message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from fairlane.model.message import DeadLetterOrigin, Delivery, FailedAttempt, Key, PriorityName


class MessageFields:
    """The fields of a ``Delivery``. Fields that change with the lease and the state are kept up to date.

    Attributes:
        delivery: the message as it was delivered.
        is_settled: whether it was acknowledged or returned.
        expires_ms: when the lease ends, unless it is extended.
        state: the workflow state, if it was requested and exists.
        state_etag: the version of the state; None if there is no state.
    """

    __slots__ = ("delivery", "expires_ms", "id", "is_settled", "queue", "state", "state_etag", "token")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.id = delivery.id
        self.queue = delivery.queue
        self.token = delivery.token
        self.expires_ms = delivery.expires_ms
        self.state = delivery.state
        self.state_etag = delivery.state_etag
        self.is_settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}, attempt {self.attempt}>"

    @property
    def payload(self) -> bytes:
        """The bytes that the producer sent."""
        return self.delivery.payload

    def json(self) -> Any:  # noqa: ANN401 - whatever the producer sent
        """Return the payload decoded from JSON.

        Raises:
            ValueError: the payload is not JSON.
        """
        return msgspec.json.decode(self.delivery.payload)

    def write_to(self, path: str | os.PathLike[str]) -> None:
        """Write the payload to a file. An existing file is replaced."""
        Path(path).write_bytes(self.delivery.payload)

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name."""
        return self.delivery.headers

    @property
    def fairness_key(self) -> Key:
        """The fairness key."""
        return self.delivery.fairness_key

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.delivery.attempt

    @property
    def enqueued_ms(self) -> int:
        """When the message was enqueued."""
        return self.delivery.enqueued_ms

    @property
    def deadline_ms(self) -> int | None:
        """The instant after which the message should not be started, by the broker's clock; None for never."""
        return self.delivery.deadline_ms

    @property
    def correlation_id(self) -> str:
        """The correlation id, which stays the same through retries and dead letters."""
        return self.delivery.correlation_id

    @property
    def cost(self) -> int:
        """What the message takes from its key's share."""
        return self.delivery.cost

    @property
    def priority(self) -> PriorityName:
        """The priority among the messages of its key."""
        return self.delivery.priority

    @property
    def failures(self) -> int:
        """How many earlier attempts have failed."""
        return self.delivery.failures

    @property
    def errors(self) -> tuple[FailedAttempt, ...]:
        """The latest failed attempts."""
        return self.delivery.errors

    @property
    def dead(self) -> DeadLetterOrigin | None:
        """Why the message died and its original queue, if it was leased from a dead-letter queue."""
        return self.delivery.dead
