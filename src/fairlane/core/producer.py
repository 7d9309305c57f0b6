"""What a producer may put into its messages: the limits of its grants, and of the queue.

A producer whose grants have fairness keys is a tenant that others don't trust. It is held to the terms that a message
*gets*: its queue's policy and hook may choose another key than the producer names, and the headers and fields that lead
them there are the producer's own. So the check comes after terms are resolved, and nowhere else. It covers

- the fairness key, of which the first name is the tenant;
- the weight, and under strict priority the priority: both take a share from other tenants;
- the throttles, whose tokens others wait for.

It may use only sinks that a grant names. A sink belongs to no tenant, since a part may have messages of several; who
publishes to it decides which batches of it still count.

What the operator decides alone (config, a hook, a literal in the policy) is never the producer's doing, and so is what
follows from the very header that its fairness key comes from. A message is allowed if one grant allows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlane.core.ledger import Queue
from fairlane.errors import Forbidden
from fairlane.model.message import Key, NewMessage
from fairlane.model.names import is_dlq
from fairlane.model.partitions import queue_of
from fairlane.verbs.keys import Grant, fits
from fairlane.verbs.verb import INCLUDED_IN


@dataclass(frozen=True, slots=True)
class LimitedProducer:
    """A producer whose messages its grants limit; see ``limited``.

    Attributes:
        name: the name of its API key.
        grants: its rights.
    """

    name: str | None
    grants: tuple[Grant, ...]

    def on(self, queue: str) -> list[Grant] | None:
        """Return the grants for a queue; None if one of them allows every message."""
        queue = queue_of(queue)
        fitting = [each for each in self.grants if each.right in INCLUDED_IN["produce"] and fits(each.queues, queue)]
        return fitting if all(map(_limits, fitting)) else None

    def may_use_sink(self, queue: str, name: str) -> bool:
        """Return whether the caller may stage and publish in a sink."""
        grants = self.on(queue)
        return grants is None or any(_allows_sink(grant, name) for grant in grants)

    def may_read(self, queue: str, key: Key) -> bool:
        """Return whether the caller may know what becomes of messages of a fairness key in a queue.

        Their producers may, and the consumers of the queue.
        """
        queue = queue_of(queue)
        return any(
            grant.right in INCLUDED_IN["consume"] or (grant.right in INCLUDED_IN["produce"] and _allows_key(grant, key))
            for grant in self.grants
            if fits(grant.queues, queue)
        )


def limited(name: str | None, grants: tuple[Grant, ...]) -> LimitedProducer | None:
    """Return a producer whose messages have to be checked; None if its grants allow every message."""
    for grant in grants:
        if _limits(grant):
            return LimitedProducer(name, grants)
    return None


def _limits(grant: Grant) -> bool:
    return grant.keys is not None or grant.throttles is not None or grant.sinks is not None


def may_produce_for(key: Key, grants: Sequence[Grant]) -> bool:
    """Return whether one of these grants allows a fairness key."""
    return any(_allows_key(grant, key) for grant in grants)


def _allows_key(grant: Grant, key: Key) -> bool:
    if grant.keys is None:
        return True
    tenant = key if isinstance(key, str) else key[0] if key else ""
    return any(fits(pattern, tenant) for pattern in grant.keys)


def _allows_throttles(grant: Grant, names: Sequence[str]) -> bool:
    if grant.throttles is None:
        return grant.keys is None or not names
    return all(any(fits(pattern, name) for pattern in grant.throttles) for name in names)


def _allows_sink(grant: Grant, name: str) -> bool:
    if grant.sinks is None:
        return grant.keys is None
    return any(fits(pattern, name) for pattern in grant.sinks)


def forbidden_sink(queue: str, name: str, producer: LimitedProducer | None) -> Forbidden | None:
    """Return why a producer may not use a sink, or None if it may."""
    if producer is None or producer.may_use_sink(queue, name):
        return None
    return Forbidden(f"API key {producer.name!r} may not use sink {name!r:.150} of queue {queue!r:.150}.")


def forbidden(
    queue: Queue, messages: Sequence[NewMessage], keys: Sequence[Key], producer: LimitedProducer | None
) -> dict[int, Forbidden]:
    """Return the messages that a producer may not enqueue under the fairness keys they get, each with why."""
    grants = None if producer is None else producer.on(queue.name)
    if grants is None and queue.policy.producer_weights:
        return {}
    who = "A producer" if producer is None else f"API key {producer.name!r}"
    found: dict[int, Forbidden] = {}
    for row, (message, key) in enumerate(zip(messages, keys, strict=True)):
        cause = _weight_cause(queue, message) if grants is None else _grant_cause(queue, message, key, grants)
        if cause is not None:
            found[row] = Forbidden(f"{who} {cause}")
    return found


def _grant_cause(queue: Queue, message: NewMessage, key: Key, grants: Sequence[Grant]) -> str | None:
    """Return why no grant allows a message, or None if one does."""
    fitting = [grant for grant in grants if _allows_key(grant, key)]
    if not fitting:
        return f"may not produce for fairness key {key!r:.150}."
    free = [grant for grant in fitting if grant.keys is None]
    if is_dlq(queue.name):
        # A redrive resolves the terms of a dead letter again, by the rules of another queue.
        if not free:
            return f"is limited to fairness keys and may not produce to the dead-letter queue {queue.name!r}."
        fitting = free
    cause = _weight_cause(queue, message)
    if cause is not None:
        if not free or not queue.policy.producer_weights:
            return cause
        fitting = free
    names = [*message.throttles, *queue.declared.named_throttles(message.headers, key)]
    if names and not any(_allows_throttles(grant, names) for grant in fitting):
        return f"may not name throttle {_first_refused(fitting, names)!r:.150}."
    return None


def _first_refused(grants: Sequence[Grant], names: Sequence[str]) -> str:
    return next((name for name in names if not any(_allows_throttles(grant, [name]) for grant in grants)), names[0])


def _weight_cause(queue: Queue, message: NewMessage) -> str | None:
    """Return why a message that sets its own share is refused, or None if it does not."""
    declared = queue.declared
    if message.weight is not None or declared.names_weight(message.headers):
        return f"may not set weights in queue {queue.name!r}; an operator sets them in config or in the queue's policy."
    if not queue.policy.strict_priority:
        return None
    if message.priority not in (None, "normal") or declared.names_priority(message.headers):
        return f"may not set priorities in queue {queue.name!r}, where strict_priority ranks them across all keys."
    return None
