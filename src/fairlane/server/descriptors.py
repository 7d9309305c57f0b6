"""File descriptors: every connection takes one, and so does every file of the store.

A process may have as many as its soft limit says, 1,024 on most systems, which it may raise to its hard limit. A
server without descriptors can neither accept a connection nor write to its store. So it raises the limit when it
starts, and leaves some for the store.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Final

from fairlane.server.limits import CallLimits

if sys.platform != "win32":
    import resource

_BESIDE: Final = 1_024
"""Descriptors besides those of connections: files of the store, and connections to other nodes and databases."""
_log = logging.getLogger("fairlane.server")


def raise_limit(wanted: int) -> int | None:
    """Raise the soft limit to a number of descriptors, or as far as possible, and return it; None for no limit."""
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < wanted and soft != hard:
        new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (new, hard))
        except (OSError, ValueError) as error:  # some systems allow less than the hard limit says
            _log.warning("The limit of open files stays at %d, because it can't be raised to %d: %s.", soft, new, error)
            return soft
        _log.info("Raised the limit of open files from %d to %d.", soft, new)
        return new
    return soft


def fit(limits: CallLimits, *, listeners: int) -> tuple[CallLimits, int | None]:
    """Raise the limit of descriptors to what the limits on connections need, and lower them if it is too small.

    Args:
        limits: the limits that are set.
        listeners: how many interfaces accept ``connections_max`` connections each.

    Returns the limits that apply, and the number of the first descriptor that is not for connections, if there is one.
    """
    soft = raise_limit(limits.connections_max * listeners + limits.descriptors_reserved + _BESIDE)
    if soft is None:
        return limits, None
    first_reserved = max(1, soft - limits.descriptors_reserved)
    most = max(1, first_reserved // listeners)
    if most >= limits.connections_max:
        return limits, first_reserved
    half = max(1, most // 2)  # one address or API key must not take all
    _log.warning(
        "The limit of open files, %d, is too small for connections_max, %d: at most %d connections are accepted, and "
        "%d from one address or API key. Raise it with ulimit -n or LimitNOFILE.",
        soft,
        limits.connections_max,
        most,
        half,
    )
    lowered = replace(
        limits,
        connections_max=most,
        connections_per_address_max=min(half, limits.connections_per_address_max),
        connections_per_key_max=min(half, limits.connections_per_key_max),
    )
    return lowered, first_reserved
