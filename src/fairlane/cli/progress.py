"""Progress for whoever sits at a terminal, and silence for all others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is for terminals only
    from fairlane.cli.terminal import Bar


class _Silence:
    def set(self, done: int, total: int | None) -> None:
        """Say nothing."""


@contextmanager
def _silence() -> Iterator[Bar]:
    yield _Silence()


def progress(words: str) -> AbstractContextManager[Bar]:
    """Return a bar on standard error if that is a terminal, otherwise one that nobody sees."""
    if sys.stderr is None or not sys.stderr.isatty():
        return _silence()
    from fairlane.cli.terminal import bar

    return bar(words)
