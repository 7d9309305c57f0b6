"""The caller of a request, and what it may do: rights on patterns of queues, and for producers of fairness keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlane.errors import Forbidden, InvalidArgument
from fairlane.model.message import Key, NewMessage
from fairlane.model.partitions import queue_of
from fairlane.verbs.batches import Stage
from fairlane.verbs.keys import EVERY, Grant
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Request, Right, Verb


class Caller(msgspec.Struct, frozen=True):
    """The caller of a request. Without grants it may do everything, because authentication is disabled.

    Attributes:
        name: the name of its API key, for the journal.
        grants: its rights.
        id: the id of its API key.
        authorization: its Authorization header, for another node that is asked on its behalf; never shown.
    """

    name: str | None = None
    grants: tuple[Grant, ...] | None = None
    id: str | None = None
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Caller(name={self.name!r}, grants={self.grants!r}, id={self.id!r})"

    def may(self, right: Right, queue: str) -> bool:
        """Return whether the caller has a right on a queue."""
        return self.grants is None or any(self._fitting(right, queue))

    def may_anywhere(self, right: Right) -> bool:
        """Return whether the caller has a right on some queues, whether or not they exist."""
        return self.grants is None or any(grant.right in (right, "admin") for grant in self.grants)

    def check(self, right: Right, queue: str) -> None:
        """Refuse a caller that has no right on a queue.

        Raises:
            Forbidden: no grant of the caller covers it.
        """
        if not self.may(right, queue):
            on = f"queue {queue!r:.150}" if queue != EVERY else "all queues"
            raise Forbidden(f"API key {self.name!r} has no right to {right} on {on}.")

    def check_producing(self, queue: str, messages: Iterable[NewMessage]) -> None:
        """Refuse messages that the caller may not enqueue.

        Raises:
            Forbidden: it may not produce on the queue, or not for the fairness key of a message.
        """
        if self.grants is None:
            return
        self.check("produce", queue)
        grants = list(self._fitting("produce", queue))
        if any(grant.keys is None for grant in grants):
            return
        patterns = [pattern for grant in grants for pattern in grant.keys or ()]
        for message in messages:
            if not _is_among(message.fairness_key, patterns):
                key = message.fairness_key
                raise Forbidden(f"API key {self.name!r} may not produce for fairness key {key!r:.150}.")

    def _fitting(self, right: Right, queue: str) -> Iterable[Grant]:
        grants, queue = self.grants or (), queue_of(queue)
        return (grant for grant in grants if grant.right in (right, "admin") and fits(grant.queues, queue))


def fits(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern."""
    return name.startswith(pattern[:-1]) if pattern.endswith(EVERY) else name == pattern


def check_grant(grant: Grant) -> None:
    """Refuse a malformed grant.

    Raises:
        InvalidArgument: a pattern is malformed, or fairness keys are given for another right than produce.
    """
    for pattern in (grant.queues, *(grant.keys or ())):
        if not pattern or EVERY in pattern[:-1]:
            raise InvalidArgument(f"A pattern is a name, a prefix followed by a star, or a star, not {pattern!r}.")
    if grant.keys is not None and grant.right != "produce":
        raise InvalidArgument("Only the produce right can be limited to fairness keys.")


def _is_among(key: Key | None, patterns: list[str]) -> bool:
    """Return whether a fairness key matches a pattern. A key that the queue's policy chooses matches only the star."""
    if key is None:
        return EVERY in patterns
    tenant = key if isinstance(key, str) else key[0] if key else ""
    return any(fits(pattern, tenant) for pattern in patterns)


def check_rights(verb: Verb, request: Request[Any], caller: Caller) -> None:
    """Refuse a request that the caller has no right to.

    Raises:
        Forbidden: no grant of the caller covers it.
    """
    if isinstance(request, (Enqueue, Stage)):
        caller.check_producing(request.queue, request.messages)
        return
    caller.check(verb.right, request.queue if verb.about == "queue" else EVERY)  # type: ignore[attr-defined]  # it names one
    if isinstance(request, Forward):
        for queue, messages in request.messages.items():
            caller.check_producing(queue, messages)


def check_before_reading(verb: Verb, caller: Caller) -> None:
    """Refuse a caller that has no right to any request of a verb, before one is read or decoded.

    Raises:
        Forbidden: no grant of the caller has the right, or it is needed on every queue and no grant covers that.
    """
    if verb.about != "queue":
        caller.check(verb.right, EVERY)
    elif not caller.may_anywhere(verb.right):
        raise Forbidden(f"API key {caller.name!r} has no right to {verb.right} on any queue.")


ANYBODY = Caller()
"""The caller while authentication is disabled."""
