"""Under which names a queue remembers dedup ids, unique keys and fan-outs: each tenant has its own, for itself alone.

The tenant is the first name of the fairness key that a message gets. One text holds both, because a pair for each id
would cost more memory than the id. Ids have no control characters, so no two pairs give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairlane.model.message import DEFAULT_KEY, Key

_BETWEEN: Final = "\0"


def remembered(keys: Sequence[Key], dedup_ids: Sequence[str | None]) -> Sequence[str | None]:
    """Return under which name each dedup id is remembered. Ids of the default key have no prefix."""
    first = keys[0]
    if keys.count(first) == len(keys):  # most batches have one key, and take half the time
        prefix = _prefix(first)
        return [None if dedup_id is None else prefix + dedup_id for dedup_id in dedup_ids] if prefix else dedup_ids
    return [
        None if dedup_id is None else _prefix(key) + dedup_id for key, dedup_id in zip(keys, dedup_ids, strict=True)
    ]


def remembered_name(key: Key, name: str) -> str:
    """Return under which name the id of a single message is remembered."""
    return _prefix(key) + name


def _prefix(key: Key) -> str:
    tenant = key if isinstance(key, str) else key[0]
    return "" if tenant == DEFAULT_KEY else tenant + _BETWEEN


@dataclass(slots=True, eq=False)
class DedupHome:
    """A batch of dedup ids, and where in the journal they are written."""

    queue: str
    numbers: dict[str, int]
    until_ms: int
    home: int
