"""What the commands need of a broker, wherever it is. The client and the embedded broker are such doors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from fairlane.errors import FairlaneError
from fairlane.model.claims import ConsumerView
from fairlane.model.message import Delivery, Key, MessageView, NewMessage, Receipt
from fairlane.model.staging import SinkView
from fairlane.model.views import DeadLetterFilter, Explained, HookTrial, QueueView, RedriveView

NackIntent = Literal["failure", "defer", "dead"]


class Carrying(Protocol):
    """What brings a delivery along, such as a message of the client."""

    @property
    def delivery(self) -> Delivery:
        """The message as it was delivered."""


class Door(Protocol):
    """A broker's verbs as far as the commands use them; see ``fairlane.broker.verbs``."""

    # -------------------------------------------------------------------------------------------------------- messages

    def enqueue(self, queue: str, message: NewMessage) -> str:
        """Enqueue a message and return its id."""

    def enqueue_many(self, queue: str, messages: Sequence[NewMessage]) -> list[str | FairlaneError]:
        """Enqueue messages, each on its own."""

    def lease(
        self,
        queue: str,
        count: int = 1,
        *,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
    ) -> Sequence[Delivery | Carrying]:
        """Lease messages, waiting for the first of them if need be."""

    def ack_many(
        self, queue: str, leased: Sequence[Receipt], *, costs: Sequence[int | None] | None = None
    ) -> list[FairlaneError | None]:
        """Let leased messages be done."""

    def nack_many(
        self,
        queue: str,
        leased: Sequence[Receipt],
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
    ) -> list[FairlaneError | None]:
        """Give leased messages back."""

    def extend_many(
        self, queue: str, leased: Sequence[Receipt], *, visibility_ms: int | None = None
    ) -> list[int | FairlaneError]:
        """Let leases last longer."""

    def get(self, queue: str, message_id: str, *, with_body: bool = True) -> MessageView:
        """Return a message without leasing it."""

    def peek(
        self,
        queue: str,
        count: int = 10,
        *,
        after: str | None = None,
        wanted: DeadLetterFilter = ...,
        with_body: bool = False,
    ) -> list[MessageView]:
        """Return messages without leasing them."""

    def explain(self, queue: str, message_id: str) -> Explained:
        """Tell why a message waits."""

    def get_state(self, queue: str, message_id: str) -> tuple[bytes | None, str | None]:
        """Return the workflow state of a message and its version."""

    def set_state(self, delivery: Delivery, state: bytes | None, /, *, etag: str | None) -> str | None:
        """Write the workflow state of a leased message."""

    # ---------------------------------------------------------------------------------------------------------- queues

    def create_queue(self, queue: str, policy: Mapping[str, object] | None = None) -> None:
        """Make a queue."""

    def update_queue(self, queue: str, policy: Mapping[str, object]) -> None:
        """Change fields of a queue's policy."""

    def delete_queue(self, queue: str) -> None:
        """Remove a queue with everything in it."""

    def pause(self, queue: str, *, key: Key | None = None) -> None:
        """Hand out nothing of a queue or of one key."""

    def resume(self, queue: str, *, key: Key | None = None) -> None:
        """Undo a pause."""

    def purge(self, queue: str) -> int:
        """Remove what is not leased, and return how many those were."""

    def queues(self) -> list[QueueView]:
        """Return all queues in short."""

    def inspect(self, queue: str) -> QueueView:
        """Return a queue with its keys and throttles."""

    # ------------------------------------------------------------------------------------------------ config and hooks

    def set_config(self, key: str, value: str | None) -> None:
        """Set a config value, or with None remove it."""

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return config values by the beginning of their keys."""

    def try_on_enqueue(
        self, queue: str, script: str, *, headers: Mapping[str, str], payload_size: int = 0
    ) -> HookTrial:
        """Run a script on a sample of an enqueue."""

    def try_on_failure(
        self, queue: str, script: str, *, headers: Mapping[str, str], attempts: int = 1, error: str = ""
    ) -> HookTrial:
        """Run a script on a sample of a failure."""

    # --------------------------------------------------------------------------------------------------------- batches

    def consumers(self, queue: str) -> list[ConsumerView]:
        """Return the registered consumers of a queue."""

    def release_consumer(self, queue: str, consumer: str) -> int:
        """Forget a consumer, and return how many messages were given back."""

    def sinks(self, queue: str) -> list[SinkView]:
        """Return the sinks of a queue."""

    def drop_sink(self, queue: str, sink: str) -> int:
        """Forget a sink, and return how many messages were staged for it."""

    # ---------------------------------------------------------------------------------------------------- dead letters

    def redrive(
        self,
        dlq: str,
        *,
        wanted: DeadLetterFilter = ...,
        count: int | None = None,
        rate: float | None = None,
        is_dry_run: bool = False,
    ) -> RedriveView:
        """Start to move dead letters back."""

    def redrive_view(self, redrive_id: str) -> RedriveView:
        """Return how far a redrive is."""

    def stop_redrive(self, redrive_id: str) -> RedriveView:
        """Stop a redrive."""
