"""What callers decide about keys and limits, and the answers of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from fairlane.scheduler.item import Item, Key
from fairlane.scheduler.token_bucket import require_limit

I = TypeVar("I", bound=Item)  # noqa: E741 - the item, as the only type parameter


class Backpressure(Enum):
    """What happens to a new item when a limit is reached."""

    REJECT = "reject"
    """The new item is refused."""
    DROP_OLDEST = "drop_oldest"
    """The item that has waited longest is dropped for the new one."""
    DROP_NEWEST = "drop_newest"
    """The item that came last is dropped for the new one."""
    WAIT = "wait"
    """The caller waits for capacity. The kernel never waits: it refuses the item with ``should_wait``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPolicy:
    """The weight and limits of one fairness key. The policy of an inner key such as ``"acme"`` covers all keys below
    it.

    Attributes:
        weight: its share relative to its siblings, an integer of at least 1.
        quantum: the deficit that one turn adds at weight 1; None for the kernel's.
        cap: how many of its items may be in use at once; None for no limit.
        floor: how many of its items may be in use even if the kernel's ``in_use_max`` is reached. Outermost keys only.
        rate: how many of its items may go in a second; None for no limit.
        burst: how many may go at once after a rest; None for those of one second, at least 1.
        charges_cost: whether an item takes as many tokens of the rate as it costs, instead of one.
        waiting_max: how many of its items may wait; None for the kernel's ``key_waiting_max``.
        backpressure: what happens when ``waiting_max`` is reached; None for the kernel's.
    """

    weight: int = 1
    quantum: int | None = None
    cap: int | None = None
    floor: int = 0
    rate: float | None = None
    burst: float | None = None
    charges_cost: bool = False
    waiting_max: int | None = None
    backpressure: Backpressure | None = None

    def __post_init__(self) -> None:
        require_whole("weight", self.weight, least=1)
        for name in ("quantum", "waiting_max"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), least=1)
        if self.cap is not None:
            require_whole("cap", self.cap, least=0)
        require_whole("floor", self.floor, least=0)
        if self.rate is not None:
            require_limit("a key", self.rate, self.burst)
        elif self.burst is not None:
            raise ValueError(f"A burst of {self.burst!r} needs a rate. Set rate as well.")
        elif self.charges_cost:
            raise ValueError("charges_cost needs a rate. Set rate as well.")
        if self.backpressure is not None:
            object.__setattr__(self, "backpressure", Backpressure(self.backpressure))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictOrder(Generic[I]):
    """What a kernel keeps in order.

    Attributes:
        group_of: returns the group of an item; equal groups are one. It must not change while the kernel has the item.
        place_of: returns the place of an item in its group, the lowest first.
        ready_of: returns the instant from which on an item could have gone, had it been the first of its group.
        batch_max: how many items of a group one hand-out may have, if the consumer takes several.
    """

    group_of: Callable[[I], Hashable]
    place_of: Callable[[I], int]
    ready_of: Callable[[I], int]
    batch_max: int = 1

    def __post_init__(self) -> None:
        require_whole("batch_max", self.batch_max, least=1)


class RefusalReason(Enum):
    """Why an item was not accepted."""

    KEY_FULL = "key_full"
    GLOBAL_FULL = "global_full"
    ALREADY_WAITING = "already_waiting"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item that was not accepted. Nothing has changed.

    Attributes:
        item: the item that was offered.
        reason: the rule that refused it.
        key: the key whose limit was reached; None for the global limit.
        limit: the limit, if there is one.
        should_wait: whether the policy is to wait for capacity.
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
    """An item that the kernel removed by itself: it expired or was dropped."""

    item: I
    reason: DepartureReason


def require_whole(name: str, value: object, *, least: int) -> None:
    """Raise ``ValueError`` unless a value is an integer of at least ``least``."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
