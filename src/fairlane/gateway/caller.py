"""The caller of a request, and what it may do: rights on patterns of queues, and for producers of fairness keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlane.core.producer import LimitedProducer, limited, may_produce_for
from fairlane.errors import Forbidden, InvalidArgument
from fairlane.model.message import NewMessage
from fairlane.model.partitions import queue_of
from fairlane.verbs.batches import Stage
from fairlane.verbs.dead_letters import Redrive
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.keys import EVERY, Grant, fits
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import CreateQueue, EnsureQueue, UpdateQueue
from fairlane.verbs.verb import INCLUDED_IN, Request, Right, Verb


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
        return self.grants is None or any(grant.right in INCLUDED_IN[right] for grant in self.grants)

    def check(self, right: Right, queue: str) -> None:
        """Refuse a caller that has no right on a queue. Raises Forbidden if no grant of the caller covers it."""
        if not self.may(right, queue):
            on = f"queue {queue!r:.150}" if queue != EVERY else "all queues"
            raise Forbidden(f"API key {self.name!r} has no right to {right} on {on}.")

    @property
    def producer(self) -> LimitedProducer | None:
        """What its grants hold its messages to, for the broker to check; None if nothing."""
        return None if self.grants is None else limited(self.name, self.grants)

    def limits_on(self, request: Request[Any]) -> LimitedProducer | None:
        """Return what the broker has to check about the caller of a request; None if nothing."""
        if self.grants is None:
            return None
        return LimitedProducer(self.name, self.grants) if request.verb.about == "message" else self.producer

    def check_reading(self, rights: Iterable[Right], queue: str | None) -> None:
        """Refuse a caller without any of these rights on a queue, or without a queue on any.

        Raises:
            Forbidden: no grant of the caller covers it.
        """
        if queue is None:
            is_allowed = any(map(self.may_anywhere, rights))
        else:
            is_allowed = any(self.may(right, queue) for right in rights)
        if not is_allowed:
            on = "any queue" if queue is None else f"queue {queue!r:.150}"
            raise Forbidden(f"API key {self.name!r} has no right to read messages on {on}.")

    def check_producing(self, queue: str, messages: Iterable[NewMessage]) -> None:
        """Refuse messages that name a fairness key for which the caller may not enqueue.

        This is the fast refusal of what a message says. What it gets, from its queue's policy and hook, only the
        broker knows; there the caller's grants are checked again (``LimitedProducer``).

        Raises:
            Forbidden: it may not produce on the queue, or not for the fairness key of a message.
        """
        if self.grants is None:
            return
        self.check("produce", queue)
        grants = list(self._fitting("produce", queue))
        if any(grant.keys is None for grant in grants):
            return
        for message in messages:
            key = message.fairness_key
            if key is not None and not may_produce_for(key, grants):
                raise Forbidden(f"API key {self.name!r} may not produce for fairness key {key!r:.150}.")

    def _fitting(self, right: Right, queue: str) -> Iterable[Grant]:
        grants, queue = self.grants or (), queue_of(queue)
        return (grant for grant in grants if grant.right in INCLUDED_IN[right] and fits(grant.queues, queue))


def check_grant(grant: Grant) -> None:
    """Refuse a malformed grant.

    Raises:
        InvalidArgument: a pattern is malformed, or fairness keys, throttles or sinks are given for another right.
    """
    limits = (grant.keys, grant.throttles, grant.sinks)
    for pattern in (grant.queues, *(pattern for patterns in limits for pattern in patterns or ())):
        if not pattern or EVERY in pattern[:-1]:
            raise InvalidArgument(f"A pattern must be a name, a prefix followed by a star, or a star, not {pattern!r}.")
    if grant.right != "produce" and limits != (None, None, None):
        raise InvalidArgument("Only the produce right can be limited to fairness keys, throttles and sinks.")


def check_rights(verb: Verb, request: Request[Any], caller: Caller) -> None:
    """Refuse a request that the caller has no right to. Raises Forbidden if no grant of the caller covers it."""
    if isinstance(request, (Enqueue, Stage)):
        caller.check_producing(request.queue, request.messages)
        return
    if verb.about == "message":  # the broker, which knows its fairness key, checks again
        caller.check_reading(verb.rights, getattr(request, "queue", None))
        return
    queue: str | None = getattr(request, "queue", None) if verb.about == "queue" else None
    caller.check(verb.right, EVERY if queue is None else queue)
    if isinstance(request, Forward):
        for queue, messages in request.messages.items():
            caller.check_producing(queue, messages)
    elif isinstance(request, FanOut):
        for queue, messages in (*request.messages.items(), (request.queue, [request.then])):
            caller.check_producing(queue, messages)
    elif (other := _other_queue(request)) is not None:
        caller.check("admin", other)


def _other_queue(request: Request[Any]) -> str | None:
    """Return the queue that dead letters would go to, by a redrive or a policy."""
    if isinstance(request, Redrive):
        return request.target
    if isinstance(request, (CreateQueue, EnsureQueue, UpdateQueue)):
        name = request.policy.get("dead_letter_queue")
        return name if isinstance(name, str) else None
    return None


def check_before_reading(verb: Verb, caller: Caller) -> None:
    """Refuse a caller that has no right to any request of a verb, before one is read or decoded.

    Raises:
        Forbidden: no grant of the caller has the right, or it is needed on every queue and no grant covers that.
    """
    if verb.about == "message":
        caller.check_reading(verb.rights, None)
    elif verb.about != "queue":
        caller.check(verb.right, EVERY)
    elif not caller.may_anywhere(verb.right):
        raise Forbidden(f"API key {caller.name!r} has no right to {verb.right} on any queue.")


ANYBODY = Caller()
"""The caller while authentication is disabled."""
