"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(written: object, known: Iterable[str]) -> str:
    """Return `` Did you mean ...?`` with the most similar known name, to append to a sentence; or an empty string."""
    names = [str(name) for name in known]
    found = get_close_matches(str(written), names, n=1, cutoff=0.6)
    if not found and isinstance(written, str) and written:
        found = [name for name in names if name.startswith(written)][:1]  # such as a duration without its unit
    return f" Did you mean {found[0]!r}?" if found else ""
