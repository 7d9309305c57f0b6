"""The warning about a broker that was not closed; Python shows it with ``-X dev`` or ``-W default``."""

from __future__ import annotations

import warnings


def warn_unclosed(broker: object) -> None:
    """Warn that a broker was garbage collected while open, as Python does for files."""
    kind = type(broker).__name__
    text = f"A {kind} was not closed. No answered request is lost; close it, or use it as a context manager."
    warnings.warn(text, ResourceWarning, source=broker, stacklevel=3)
