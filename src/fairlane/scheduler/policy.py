"""What the caller decides about keys and limits, and what the kernel answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from fairlane.scheduler.item import Item, Key

I = TypeVar("I", bound=Item)  # noqa: E741 - the item, as the only type parameter


class Backpressure(Enum):
    """What happens to a new item when a limit is reached."""

    REJECT = "reject"
    """The new item is refused."""
    DROP_OLDEST = "drop_oldest"
    """The longest waiting item makes room for the new one."""
    DROP_NEWEST = "drop_newest"
    """The latest waiting item makes room for the new one."""
    WAIT = "wait"
    """The caller waits for room. The kernel, which never waits, refuses the item and says that waiting would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPolicy:
    """What one fairness key is entitled to. A policy of an inner key such as ``"acme"`` covers all below it.

    Attributes:
        weight: its share relative to its siblings, a whole number of at least 1.
        quantum: what one turn is worth at weight 1; the kernel's own when None.
        cap: how many of its items may be in use at once, None for any number.
        waiting_max: how many of its items may wait, None for the kernel's ``key_waiting_max``.
        backpressure: what happens beyond ``waiting_max``, None for the kernel's own.
    """

    weight: int = 1
    quantum: int | None = None
    cap: int | None = None
    waiting_max: int | None = None
    backpressure: Backpressure | None = None

    def __post_init__(self) -> None:
        require_whole("weight", self.weight, least=1)
        for name in ("quantum", "waiting_max"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), least=1)
        if self.cap is not None:
            require_whole("cap", self.cap, least=0)
        if self.backpressure is not None:
            object.__setattr__(self, "backpressure", Backpressure(self.backpressure))


class RefusalReason(Enum):
    """Why an item was not accepted."""

    KEY_FULL = "key_full"
    GLOBAL_FULL = "global_full"
    ALREADY_WAITING = "already_waiting"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected no: the item was not accepted and nothing has changed.

    Attributes:
        item: what was offered.
        reason: which rule said no.
        key: whose limit it was; None for the limit on everything.
        limit: the limit, where there is one.
        should_wait: whether the policy is to wait for room.
    """

    item: Item
    reason: RefusalReason
    key: Key | None = None
    limit: int | None = None
    should_wait: bool = False


class DepartureReason(Enum):
    """Why an item left without being handed out or cancelled."""

    EXPIRED = "expired"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Departure(Generic[I]):
    """An item that left the kernel on the kernel's own decision."""

    item: I
    reason: DepartureReason


def require_whole(name: str, value: object, *, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")
