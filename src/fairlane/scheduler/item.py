"""What waits: an item of work, and the fairness key it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from fairlane.scheduler.holdups import Holdup
    from fairlane.scheduler.lanes import Lane

KEY_DEPTH_MAX = 32
"""How many names a fairness key may have."""

Key: TypeAlias = str | tuple[str, ...]
"""A fairness key: a name, or a path of names such as ``("acme", "mobile")``. ``"acme"`` and ``("acme",)`` are equal."""


class Priority(IntEnum):
    """Which items of one key go first. The order of the numbers is the order of service."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


def path_of(key: Key) -> tuple[str, ...]:
    """Return the key as a path of names, outermost first."""
    return (key,) if isinstance(key, str) else key


def canonical_key(key: Key) -> Key:
    """Return the one spelling of a key that the kernel uses: a string when flat, a tuple when nested.

    Raises:
        ValueError: the key is empty or too deep, or is neither a string nor a path of strings.
    """
    if isinstance(key, str):
        if key:
            return key
        raise ValueError("A fairness key must not be empty: name the tenant it stands for.")
    path = tuple(key) if isinstance(key, (tuple, list)) else ()
    if not path or not all(isinstance(name, str) and name for name in path):
        raise ValueError(f"A fairness key is a non-empty string or a path of them, not {key!r}.")
    if len(path) > KEY_DEPTH_MAX:
        raise ValueError(f"A fairness key has at most {KEY_DEPTH_MAX} names, not {len(path)}.")
    return path[0] if len(path) == 1 else path


def _is_instant(value: object) -> bool:
    return value is None or type(value) is int


class ItemTerms(TypedDict, total=False):
    """What can be said of an item when it is made, for subclasses to pass on; see ``Item``."""

    cost: int
    priority: Priority
    throttles: Sequence[str]
    due_ms: int | None
    deadline_ms: int | None


class Item:
    """One piece of work that waits its turn. Subclass it to carry a payload.

    The caller makes the item, offers it, and keeps it as the handle for ``cancel`` and ``explain``. Its attributes are
    for reading. Once handed out, cancelled, dropped or expired it may be offered again, if need be at another time.
    """

    __slots__ = (
        "cost",
        "deadline_ms",
        "due_ms",
        "held",
        "key",
        "lane",
        "next",
        "plain",
        "previous",
        "priority",
        "sequence",
        "throttles",
    )

    def __init__(
        self,
        key: Key,
        *,
        cost: int = 1,
        priority: Priority = Priority.NORMAL,
        throttles: Sequence[str] = (),
        due_ms: int | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """Describe a piece of work.

        Args:
            key: who the work is for; shares are fair between keys.
            cost: what serving it takes from the key's deficit, a whole number of at least 1.
            priority: its rank among the items of its own key.
            throttles: names of the token buckets that must all have a token before it goes.
            due_ms: not before this instant.
            deadline_ms: not after this instant; past it the item expires and is never handed out.

        Raises:
            ValueError: the key is empty or the cost is not a whole number of at least 1.
        """
        if type(cost) is not int or cost < 1:
            raise ValueError(f"An item's cost must be a whole number of at least 1, not {cost!r}.")
        if isinstance(throttles, str):
            raise ValueError(f"Throttles are a list of names, not one string: write [{throttles!r}].")
        if throttles and not all(isinstance(name, str) for name in throttles):
            raise ValueError(f"Throttles are names, not {throttles!r}.")
        if not (_is_instant(due_ms) and _is_instant(deadline_ms)):
            raise ValueError(f"Instants are whole milliseconds, not {due_ms!r} and {deadline_ms!r}.")
        self.key: Key = key if type(key) is str and key else canonical_key(key)
        self.cost = cost
        self.priority = priority if type(priority) is Priority else Priority(priority)
        self.throttles: tuple[str, ...] = tuple(sorted(set(throttles))) if throttles else ()
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        # The rest belongs to the kernel.
        self.plain = self._is_plain()
        self.held: Holdup | None = None
        self.lane: Lane | None = None
        self.next: Item | None = None
        self.previous: Item | None = None
        self.sequence = 0

    def reschedule(self, *, due_ms: int | None = None, deadline_ms: int | None = None) -> None:
        """Give an item that does not wait new instants, before it is offered again.

        Raises:
            ValueError: the item waits.
        """
        if self.lane is not None:
            raise ValueError(f"{self!r} waits: cancel it first.")
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        self.plain = self._is_plain()

    def _is_plain(self) -> bool:
        """Tell whether it needs neither timer nor a lane of its own, and so may take the short way in."""
        is_timed = self.due_ms is not None or self.deadline_ms is not None
        return not self.throttles and not is_timed and self.priority == Priority.NORMAL

    @property
    def is_waiting(self) -> bool:
        """Whether a kernel holds the item: offered, and neither handed out nor gone."""
        return self.lane is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r}, cost={self.cost})"
