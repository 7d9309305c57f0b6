"""What hooks can read of the config: the values of their own queue, and those that are public.

A script never names a whole config key. What it calls ``plan`` is ``queue:orders:plan`` for a hook of the queue
``orders``, or else ``public:plan``. So a script can't reach any other value, and the same script works in every queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlane.model.names import DLQ_SUFFIX
from fairlane.model.partitions import queue_of

PUBLIC_PREFIX: Final = "public:"


def own_prefix(queue: str) -> str:
    """Return what the config keys of a queue begin with: partitions and the dead-letter queue share those of theirs."""
    return f"queue:{queue_of(queue).removesuffix(DLQ_SUFFIX)}:"


def read_for_hook(value_of: Callable[[str], str | None], queue: str, name: str) -> str | None:
    """Return what a hook of a queue reads under a name: the queue's own value, else the public one, else None."""
    own = value_of(own_prefix(queue) + name)
    return own if own is not None else value_of(PUBLIC_PREFIX + name)
