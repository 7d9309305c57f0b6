"""What few messages have, so that it is made only for those."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.core.states.uploads import Pieces
from fairlane.model.message import FailedAttempt, errors_bytes


@dataclass(slots=True, eq=False)
class Aftermath:
    """What few messages have: lost or failed attempts, a past in another queue, workflow state, limits of their own.

    Attributes:
        dead_at: the sequence at which it became a dead letter; 0 for others.
        late_token: the fencing token of its last lease, if that was lost and it has not been leased since.
        state: the body that has its workflow state, of ``state_bytes``.
        pieces: where its payload is, if that was uploaded.
    """

    errors: tuple[FailedAttempt, ...] = ()
    origin: str | None = None
    dead_reason: str | None = None
    dead_ms: int = 0
    dead_at: int = 0
    state: int | None = None
    state_bytes: int = 0
    cap: int | None = None
    expiries: int = 0
    late_token: int = 0
    max_attempts: int | None = None
    visibility_ms: int | None = None
    result_ttl_ms: int | None = None
    pieces: Pieces | None = None
    order_key: str | None = None
    unique_key: str | None = None

    @property
    def delivered_bytes(self) -> int:
        """How many bytes of it are part of a delivery."""
        return self.state_bytes + errors_bytes(self.errors) if self.errors else self.state_bytes
