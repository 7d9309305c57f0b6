"""An item of work, and the fairness key it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias, TypedDict, TypeGuard

from fairlane.scheduler.compiled import mypyc_attr

if TYPE_CHECKING:
    from fairlane.scheduler.lanes import Holdup, Lane

KEY_DEPTH_MAX = 32
"""The maximum number of names in a fairness key."""

Key: TypeAlias = str | tuple[str, ...]
"""A fairness key: a name, or a path of names such as ``("acme", "mobile")``. ``"acme"`` equals ``("acme",)``."""

Whole: TypeAlias = SupportsIndex
"""An integer. Compiled code converts or refuses what is no ``int`` before it can be checked, but not this type."""


class Priority(IntEnum):
    """The rank of an item among those of its key. The order of the numbers is the order of service."""

    HIGH = 0
    NORMAL = 1
    LOW = 2

    __hash__ = int.__hash__  # that of an enum is a function in Python, and lanes are looked up by it


def path_of(key: Key) -> tuple[str, ...]:
    """Return the key as a path of names, outermost first."""
    return (key,) if isinstance(key, str) else key


def canonical_key(key: Key | Sequence[str]) -> Key:
    """Return the form of a key that the kernel uses: a string when flat, a tuple when nested.

    Raises:
        ValueError: the key is empty or too deep, or is neither a string nor a path of strings.
    """
    if isinstance(key, str):
        if key:
            return key
        raise ValueError("A fairness key must not be empty. Pass the name of the tenant.")
    path = tuple(key) if isinstance(key, (tuple, list)) else ()
    if not path or not all(isinstance(name, str) and name for name in path):
        raise ValueError(f"A fairness key must be a non-empty string or a path of them, got {key!r}.")
    if len(path) > KEY_DEPTH_MAX:
        raise ValueError(f"A fairness key has at most {KEY_DEPTH_MAX} names, got {len(path)}.")
    return path[0] if len(path) == 1 else path


def _is_instant(value: object) -> TypeGuard[int | None]:
    return value is None or type(value) is int


class ItemTerms(TypedDict, total=False):
    """The optional arguments of ``Item``, for subclasses to pass on."""

    cost: int
    priority: Priority
    throttles: Sequence[str]
    due_ms: int | None
    deadline_ms: int | None


@mypyc_attr(allow_interpreted_subclasses=True)
class Item:
    """A piece of work that waits for its turn. Subclass it to carry a payload.

    The caller creates the item, offers it, and keeps it as the handle for ``cancel`` and ``explain``. Its attributes
    are read-only. Once handed out, cancelled, dropped or expired, it may be offered again, if needed for another time.
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
        key: Key | Sequence[str],
        *,
        cost: Whole = 1,
        priority: Priority = Priority.NORMAL,
        throttles: Sequence[str] = (),
        due_ms: Whole | None = None,
        deadline_ms: Whole | None = None,
    ) -> None:
        """Create an item.

        Args:
            key: the tenant that the work is for; shares are fair between keys.
            cost: what serving it takes from the key's deficit, an integer of at least 1.
            priority: its rank among the items of its own key.
            throttles: names of the token buckets that must all have a token before it goes.
            due_ms: the instant before which it is not handed out.
            deadline_ms: the instant after which it expires and is never handed out.

        Raises:
            ValueError: the key is empty, the cost is not an integer of at least 1, or another value has the wrong type.
        """
        if type(cost) is not int or cost < 1:
            raise ValueError(f"The cost of an item must be an integer of at least 1, got {cost!r}.")
        if isinstance(throttles, str):
            raise ValueError(f"throttles must be a list of names, got a string. Pass [{throttles!r}].")
        if throttles and not all(isinstance(name, str) for name in throttles):
            raise ValueError(f"throttles must be a list of names, got {throttles!r}.")
        if not (_is_instant(due_ms) and _is_instant(deadline_ms)):
            raise ValueError(f"due_ms and deadline_ms must be integers or None, got {due_ms!r} and {deadline_ms!r}.")
        self.key: Key = key if type(key) is str and key else canonical_key(key)
        self.cost = cost
        self.priority = priority if type(priority) is Priority else Priority(priority)
        self.throttles: tuple[str, ...] = tuple(sorted(set(throttles))) if throttles else ()
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        # The remaining attributes belong to the kernel.
        self.plain = self._is_plain()
        self.held: Holdup | None = None
        self.lane: Lane | None = None
        self.next: Item | None = None
        self.previous: Item | None = None
        self.sequence = 0

    def reschedule(self, *, due_ms: int | None = None, deadline_ms: int | None = None) -> None:
        """Set new instants on an item that does not wait, before it is offered again.

        Raises:
            ValueError: the item is waiting.
        """
        if self.lane is not None:
            raise ValueError(f"{self!r} is waiting. Cancel it before you reschedule it.")
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        self.plain = self._is_plain()

    def _is_plain(self) -> bool:
        """Return whether it needs neither a timer nor a lane of its own, and so may take the fast path in."""
        is_timed = self.due_ms is not None or self.deadline_ms is not None
        return not self.throttles and not is_timed and self.priority == Priority.NORMAL

    @property
    def is_waiting(self) -> bool:
        """Whether a kernel holds the item: offered, and neither handed out nor gone."""
        return self.lane is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r}, cost={self.cost})"
