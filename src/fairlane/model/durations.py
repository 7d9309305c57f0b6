"""Durations as people write them: ``500ms``, ``90s``, ``1h30m``."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def milliseconds(text: str) -> int:
    """Return the milliseconds of a duration such as ``90s`` or ``1h30m``.

    Raises:
        ValueError: the text is not a duration.
    """
    if text == "0":
        return 0
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"Invalid duration {text!r}; write a number with a unit, such as 500ms, 30s, 5m, 2h or 1d.")
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if total != int(total):
        raise ValueError(f"Invalid duration {text!r}; it must be a whole number of milliseconds.")
    return int(total)
