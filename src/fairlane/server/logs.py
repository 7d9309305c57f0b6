"""The level at which a server logs a refused request."""

from __future__ import annotations

import logging

from fairlane.errors import FairlaneError, InternalError, RateLimited


def level_of(error: FairlaneError) -> int:
    """Return the log level of an error: our own bugs are errors, and rate-limited callers cannot fill the log."""
    if isinstance(error, InternalError):
        return logging.ERROR
    return logging.DEBUG if isinstance(error, RateLimited) else logging.INFO
