"""The fields of a leased message."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.errors import PayloadStreamed
from fairlane.model.message import DeadLetterOrigin, Delivery, FailedAttempt, Key, PriorityName
from fairlane.verbs.columns import DeliveryRow


class MessageFields:
    """The fields of a ``Delivery``. Fields that change with the lease and the state are kept up to date.

    Attributes:
        source: the message as it was delivered, on its own or as a row of a batch.
        is_settled: whether it was acknowledged or returned.
        is_cancelled: whether a caller cancelled it after it was delivered; its lease has ended then.
        expires_ms: when the lease ends, unless it is extended.
        state: the workflow state, if it was requested and exists.
        state_etag: the version of the state; None if there is no state.
    """

    __slots__ = (*("expires_ms", "is_cancelled", "is_settled", "source", "state", "state_etag"),)

    def __init__(self, delivery: Delivery | DeliveryRow) -> None:
        self.source = delivery
        self.expires_ms = delivery.expires_ms
        self.state = delivery.state
        self.state_etag = delivery.state_etag
        self.is_settled = self.is_cancelled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}, attempt {self.attempt}>"

    @property
    def delivery(self) -> Delivery:
        """The message as it was delivered."""
        if isinstance(self.source, DeliveryRow):
            self.source = self.source.delivery()
        return self.source

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.source.id

    @property
    def queue(self) -> str:
        """The queue it was leased from."""
        return self.source.queue

    @property
    def token(self) -> int:
        """The fencing token of its lease."""
        return self.source.token

    @property
    def payload(self) -> bytes:
        """The bytes that the producer sent.

        Raises:
            PayloadStreamed: they were uploaded in pieces: read them with ``read``, ``reader`` or ``write_to``.
        """
        delivery = self.source
        if delivery.payload_size is not None:
            raise PayloadStreamed(f"The payload of message {self.id} has {delivery.payload_size} bytes.")
        return delivery.payload

    @property
    def size(self) -> int:
        """The size of the payload in bytes."""
        streamed = self.source.payload_size
        return len(self.source.payload) if streamed is None else streamed

    @property
    def is_streamed(self) -> bool:
        """Whether the payload was uploaded in pieces, so that ``payload`` does not hold it."""
        return self.source.payload_size is not None

    def json(self) -> Any:  # noqa: ANN401 - whatever the producer sent
        """Return the payload decoded from JSON.

        Raises:
            ValueError: the payload is not JSON.
            PayloadStreamed: it was uploaded in pieces, and is not in memory.
        """
        return msgspec.json.decode(self.payload)

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name."""
        return self.source.headers

    @property
    def fairness_key(self) -> Key:
        """The fairness key."""
        return self.source.fairness_key

    @property
    def order_key(self) -> str | None:
        """The order key, if its producer set one."""
        return self.source.order_key

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.source.attempt

    @property
    def enqueued_ms(self) -> int:
        """When the message was enqueued."""
        return self.source.enqueued_ms

    @property
    def deadline_ms(self) -> int | None:
        """The instant after which the message should not be started, by the broker's clock; None for never."""
        return self.source.deadline_ms

    @property
    def correlation_id(self) -> str:
        """The correlation id, which stays the same through retries and dead letters."""
        return self.source.correlation_id

    @property
    def cost(self) -> int:
        """What the message takes from its key's share."""
        return self.source.cost

    @property
    def priority(self) -> PriorityName:
        """The priority among the messages of its key."""
        return self.source.priority

    @property
    def failures(self) -> int:
        """How many earlier attempts have failed."""
        return self.source.failures

    @property
    def errors(self) -> tuple[FailedAttempt, ...]:
        """The latest failed attempts."""
        return self.source.errors

    @property
    def dead(self) -> DeadLetterOrigin | None:
        """Why the message died and its original queue, if it was leased from a dead-letter queue."""
        return self.source.dead
