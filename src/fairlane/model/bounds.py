"""Lists and maps with a maximum length, for every type that a request contains.

A decoder refuses a list or map that is longer before it creates the items, so a small request cannot become a large
object. Requests use these types instead of plain ones; a test walks all requests and fails on a plain list or map. Each
type carries the name of its limit, which the error names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from fairlane.model import limits

T = TypeVar("T")
LIMIT: Final = "limit"
"""Where a type keeps the name of its limit, among the extras of its ``msgspec.Meta``."""


def _most(limit: str) -> msgspec.Meta:
    """Return the metadata of a type whose length is limited by a constant of ``fairlane.model.limits``."""
    return msgspec.Meta(max_length=getattr(limits, limit), extra={LIMIT: limit})


Batch: TypeAlias = Annotated[list[T], _most("BATCH_MAX")]
"""The items of a request."""
Numbers: TypeAlias = Annotated[tuple[int, ...], _most("BATCH_MAX")]
Ids: TypeAlias = Annotated[tuple[str, ...], _most("BATCH_MAX")]
ConfigChanges: TypeAlias = Annotated[dict[str, str | None], _most("BATCH_MAX")]
ByQueue: TypeAlias = Annotated[dict[str, T], _most("FORWARD_QUEUES_MAX")]
Headers: TypeAlias = Annotated[Mapping[str, str], _most("HEADERS_MAX")]
Throttles: TypeAlias = Annotated[tuple[str, ...], _most("THROTTLES_MAX")]
KeyPath: TypeAlias = Annotated[tuple[str, ...], _most("KEY_DEPTH_MAX")]
RequestKey: TypeAlias = str | KeyPath
"""A fairness key in a request; see ``fairlane.model.message.Key``."""
ByKey: TypeAlias = Annotated[dict[str, int], _most("POLICY_KEYS_MAX")]
Patterns: TypeAlias = Annotated[tuple[str, ...], _most("GRANT_PATTERNS_MAX")]
Grants: TypeAlias = Annotated[tuple[T, ...], _most("GRANTS_MAX")]
Parts: TypeAlias = Annotated[list[str], _most("PARTS_MAX")]
Calls: TypeAlias = Annotated[list[T], _most("CALLS_MAX")]
PolicyValue: TypeAlias = bool | int | float | str | Throttles | ByKey | None
"""A value of a field of ``QueuePolicy``. Which of these it may be is checked with the policy."""
PolicyChanges: TypeAlias = Annotated[dict[str, PolicyValue], msgspec.Meta(max_length=100)]
"""Fields of ``QueuePolicy``, by name; there are fewer than this."""


def excess(name: str, limit: str) -> str:
    """Return what is wrong with a list or map that is too long, and what to do about it."""
    return f"{name} has more than {limit} ({getattr(limits, limit)}) items. Send fewer, in several requests if need be."


def excess_of(name: str, items: Sized, limit: str) -> str | None:
    """Return what is wrong with the length of a list or map, or None if nothing is."""
    return excess(name, limit) if len(items) > getattr(limits, limit) else None
