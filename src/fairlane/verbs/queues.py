"""Verbs about queues: create, change and delete them, pause and purge them, look at them."""

from __future__ import annotations

import msgspec

from fairlane.model.bounds import PolicyChanges, RequestKey
from fairlane.model.policy import QueuePolicy
from fairlane.model.views import QueueView
from fairlane.verbs.verb import Done, Request, Shape, Verb


@Verb(name="create_queue", path="queues/create", right="admin", spread="own", command="queue create")
class CreateQueue(Request[Done], frozen=True, kw_only=True):
    """Create a queue and its dead-letter queue.

    Attributes:
        policy: the fields of its policy, by name; the others have their defaults.
        group: in a cluster, the group that the queue joins; the cluster chooses one by default.
    """

    queue: str
    policy: PolicyChanges = msgspec.field(default_factory=dict)
    group: str | None = None


class EnsuredQueue(Shape, frozen=True, kw_only=True):
    """A queue that exists now.

    Attributes:
        is_created: whether the request created it.
        policy: its policy. A queue that existed before keeps the policy that it had.
        differing: the names of the requested policy fields that have another value in a queue that existed before.
    """

    is_created: bool
    policy: QueuePolicy
    differing: list[str] = msgspec.field(default_factory=list)


@Verb(name="ensure_queue", path="queues/ensure", right="admin", repeat="always", spread="own", command="queue ensure")
class EnsureQueue(Request[EnsuredQueue], frozen=True, kw_only=True):
    """Create a queue if it does not exist. A queue that exists is not changed.

    Attributes:
        policy: the fields of its policy, by name; the others have their defaults.
        group: in a cluster, the group that a new queue joins; the cluster chooses one by default.
    """

    queue: str
    policy: PolicyChanges = msgspec.field(default_factory=dict)
    group: str | None = None


@Verb(name="update_queue", path="queues/update", right="admin", repeat="always", spread="own", command="queue update")
class UpdateQueue(Request[Done], frozen=True, kw_only=True):
    """Change fields of a queue's policy.

    Attributes:
        policy: the fields to change, by name.
    """

    queue: str
    policy: PolicyChanges


@Verb(name="delete_queue", path="queues/delete", right="admin", spread="own", command="queue delete")
class DeleteQueue(Request[Done], frozen=True, kw_only=True):
    """Delete a queue with all its messages, and its dead-letter queue."""

    queue: str


@Verb(name="pause", path="queues/pause", right="admin", repeat="always", spread="all", command="queue pause")
class PauseQueue(Request[Done], frozen=True, kw_only=True):
    """Stop delivery from a queue, or from one fairness key.

    Attributes:
        key: the fairness key to pause; the whole queue by default.
    """

    queue: str
    key: RequestKey | None = None


@Verb(name="resume", path="queues/resume", right="admin", repeat="always", spread="all", command="queue resume")
class ResumeQueue(Request[Done], frozen=True, kw_only=True):
    """Resume delivery from a queue, or from one fairness key.

    Attributes:
        key: the fairness key to resume; the whole queue by default.
    """

    queue: str
    key: RequestKey | None = None


class MessageCount(Shape, frozen=True, kw_only=True):
    """The number of messages that were affected."""

    count: int


@Verb(name="purge", path="queues/purge", right="admin", spread="all", command="queue purge")
class PurgeQueue(Request[MessageCount], frozen=True, kw_only=True):
    """Delete all messages of a queue.

    Attributes:
        queue: the queue.
        with_leased: whether to delete leased messages, too. Their leases become stale.
    """

    queue: str
    with_leased: bool = False


class QueueList(Shape, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: list[QueueView]


@Verb(name="queues", path="queues/list", right="observe", about="every", repeat="always", command="queue list")
class ListQueues(Request[QueueList], frozen=True, kw_only=True):
    """Return all queues in short."""


@Verb(name="inspect", path="queues/inspect", right="observe", repeat="always", spread="all", command="queue inspect")
class InspectQueue(Request[QueueView], frozen=True, kw_only=True):
    """Return a queue with its fairness keys, throttles, registered consumers and sinks."""

    queue: str


@Verb(name="stats", path="queue/stats", right="observe", repeat="always", spread="all", command="stats")
class GetStats(Request[QueueView], frozen=True, kw_only=True):
    """Return a queue in short, or with some of its fairness keys.

    Attributes:
        keys_max: how many fairness keys to include, those with the most messages first.
    """

    queue: str
    keys_max: int = 0
