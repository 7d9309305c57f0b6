"""Counts of the calls that a server has answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class CallCounts:
    """What the interfaces have counted since the server started.

    Attributes:
        calls: calls by verb.
        errors: refused requests by error code, each once, whether or not a verb was called.
        auth_failures: requests without a valid API key where one is required.
        delivered: messages sent to streaming consumers and HTTP subscriptions.
        streams: open stream connections.
        subscriptions: open HTTP subscriptions, including live feeds.
    """

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    auth_failures: int = 0
    delivered: int = 0
    streams: int = 0
    subscriptions: int = 0
