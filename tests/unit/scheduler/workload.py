"""Helpers: create a backlog, and read what a kernel hands out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.scheduler import Item, Kernel, Key


def offer(kernel: Kernel[Item], key: Key, count: int = 1, now_ms: int = 0, **fields: Any) -> list[Item]:
    """Offer some equal items of a key, and return them."""
    items = [Item(key, **fields) for _ in range(count)]
    assert kernel.offer_many(items, now_ms) == []
    return items


def keys_of(items: Iterable[Item]) -> list[Key]:
    return [item.key for item in items]


def take_keys(kernel: Kernel[Item], count: int, now_ms: int = 0) -> list[Key]:
    """Take items and return their keys, in order."""
    return keys_of(kernel.take(count, now_ms))
