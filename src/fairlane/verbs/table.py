"""The table of all verbs, and the tables that derive from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlane.verbs import (
    batches,
    cluster,
    config,
    dead_letters,
    fan_outs,
    journal,
    keys,
    leases,
    messages,
    queues,
    schedules,
    status,
    stores,
    uploads,
)
from fairlane.verbs.verb import Request, Verb

_TOPICS: Final = (
    *(
        messages,
        leases,
        fan_outs,
        uploads,
        status,
        queues,
        schedules,
        dead_letters,
        config,
        batches,
        journal,
        stores,
        cluster,
        keys,
    ),
)

VERBS: Final[Mapping[str, Verb]] = {
    request.verb.name: request.verb
    for topic in _TOPICS
    for request in vars(topic).values()
    if isinstance(request, type) and issubclass(request, Request) and request is not Request
}
"""All verbs by name."""
METHODS: Final[Mapping[str, Verb]] = {verb.method: verb for verb in VERBS.values()}
"""The verb behind each gRPC method."""
PATHS: Final[Mapping[str, Verb]] = {path: verb for verb in VERBS.values() for path in (verb.path, *verb.aliases)}
"""The verb at each HTTP path below ``/v1``, aliases included."""
