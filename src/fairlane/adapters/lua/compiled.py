"""Compiled scripts, kept by their text: a script that is loaded again is not compiled again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of text and compiled code that are kept: a hundred scripts of the greatest length, or 10,000 usual ones."""


class CompiledScripts:
    """The compiled forms of scripts. When they are too large together, those used longest ago are forgotten."""

    def __init__(self, *, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, text: str) -> bytes | None:
        """Return the compiled form of a script; None if it is not known."""
        compiled = self._kept.get(text)
        if compiled is not None:
            self._kept.move_to_end(text)
        return compiled

    def keep(self, text: str, compiled: bytes) -> None:
        """Keep the compiled form of a script."""
        if text in self._kept:
            return
        self._kept[text] = compiled
        self._bytes += len(text) + len(compiled)
        while self._bytes > self._bytes_max:
            old, form = self._kept.popitem(last=False)
            self._bytes -= len(old) + len(form)
