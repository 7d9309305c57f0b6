"""Being told to stop: SIGTERM ends a command as orderly as an interrupt does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM interrupt what is done here, so that it can give back what it has."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
