"""What a leased message says."""

from __future__ import annotations

from fairlane.model.message import DeadLetter, Delivery, FailedAttempt, Key, PriorityName


class MessageFields:
    """The fields of a ``Delivery``; those that change with the lease and the state are kept up to date.

    Attributes:
        delivery: the message as it was delivered.
        is_settled: whether it was acked or given back.
        expires_ms: the instant at which the lease ends unless extended.
        state: the workflow state, if it was asked for and there is one.
        state_etag: names that version of the state; None when there is no state.
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
        """What the producer sent."""
        return self.delivery.payload

    @property
    def headers(self) -> dict[str, str]:
        """Text by name."""
        return self.delivery.headers

    @property
    def fairness_key(self) -> Key:
        """Who the message is for."""
        return self.delivery.fairness_key

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1."""
        return self.delivery.attempt

    @property
    def enqueued_ms(self) -> int:
        """When it was enqueued."""
        return self.delivery.enqueued_ms

    @property
    def correlation_id(self) -> str:
        """What travels with it through retries and dead letters."""
        return self.delivery.correlation_id

    @property
    def cost(self) -> int:
        """What serving it takes from its key's share."""
        return self.delivery.cost

    @property
    def priority(self) -> PriorityName:
        """Its rank among the messages of its own key."""
        return self.delivery.priority

    @property
    def failures(self) -> int:
        """How many attempts have failed before."""
        return self.delivery.failures

    @property
    def errors(self) -> tuple[FailedAttempt, ...]:
        """The latest failed attempts."""
        return self.delivery.errors

    @property
    def dead(self) -> DeadLetter | None:
        """Why and from where it came to the dead-letter queue it was leased from."""
        return self.delivery.dead
