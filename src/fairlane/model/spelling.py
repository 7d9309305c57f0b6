"""What somebody may have meant who wrote a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(written: object, known: Iterable[str]) -> str:
    """Return a question that names what is written nearly the same, to be put behind a sentence; or nothing."""
    names = [str(name) for name in known]
    found = get_close_matches(str(written), names, n=1, cutoff=0.6)
    if not found and isinstance(written, str) and written:
        found = [name for name in names if name.startswith(written)][:1]  # such as a timespan without its unit
    return f" Did you mean {found[0]!r}?" if found else ""
