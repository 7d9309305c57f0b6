"""A word for those who forget to close a broker; shown with ``python -X dev`` or ``-W default``."""

from __future__ import annotations

import warnings


def tell_unclosed(broker: object) -> None:
    """Warn that a broker is going away open, as Python does of files."""
    kind = type(broker).__name__
    told = f"A {kind} was not closed. Nothing that it answered is lost; use it as a context manager, or close it."
    warnings.warn(told, ResourceWarning, source=broker, stacklevel=3)
