"""A trial: one change of settings on its way from a proposal to its outcome, as a table of states.

=============  ==================  =============
state          event               next state
=============  ==================  =============
proposed       forecast_passes     tried
proposed       forecast_fails      refused
tried          set                 applied
applied        window_passed       watched
applied        changed_by_others   superseded
applied        ran_out             expired
watched        holds               kept
watched        fails               rolled_back
watched        changed_by_others   superseded
watched        ran_out             expired
=============  ==================  =============

Every state without a row of its own is final. A trial that is given up before that, because its tuner dies, has an
expiry in the broker, which then restores the values before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

State: TypeAlias = Literal[
    "proposed", "tried", "applied", "watched", "kept", "rolled_back", "refused", "superseded", "expired"
]
Event: TypeAlias = Literal[
    "forecast_passes",
    "forecast_fails",
    "set",
    "window_passed",
    "holds",
    "fails",
    "changed_by_others",
    "ran_out",
]

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    ("proposed", "forecast_passes"): "tried",
    ("proposed", "forecast_fails"): "refused",
    ("tried", "set"): "applied",
    ("applied", "window_passed"): "watched",
    ("applied", "changed_by_others"): "superseded",
    ("applied", "ran_out"): "expired",
    ("watched", "holds"): "kept",
    ("watched", "fails"): "rolled_back",
    ("watched", "changed_by_others"): "superseded",
    ("watched", "ran_out"): "expired",
}
FINAL: Final[frozenset[State]] = frozenset(TRANSITIONS.values()) - {state for state, _ in TRANSITIONS}
"""The states that a trial ends in."""


class Setting(msgspec.Struct, frozen=True):
    """A config value as it was before a trial: None if it was not set; ``expires_ms`` if it was temporary."""

    value: str | None
    expires_ms: int | None = None


class SettingTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One change of settings.

    Attributes:
        state: how far it is.
        values: the config values that it sets; None removes one.
        before: what they were before.
        applied_ms: when the broker set them, by the broker's clock.
        sequence: the sequence of that change in the journal; a later change is someone else's.
    """

    state: State = "proposed"
    values: dict[str, str | None] = {}
    before: dict[str, Setting] = {}
    applied_ms: int = 0
    sequence: int = 0

    def after(self, event: Event) -> SettingTrial:
        """Return the trial after an event. Raises KeyError if the event can't happen in its state."""
        return msgspec.structs.replace(self, state=TRANSITIONS[self.state, event])
