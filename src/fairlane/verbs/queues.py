"""Verbs about queues: create, change and delete them, pause and purge them, look at them."""

from __future__ import annotations

from typing import Final

from fairlane.model.bounds import PolicyChanges, RequestKey
from fairlane.model.policy import QueuePolicy
from fairlane.model.views import QueueView
from fairlane.verbs.verb import Done, Request, Shape, Verb


class CreateQueue(Request[Done], frozen=True, kw_only=True):
    """Create a queue and its dead-letter queue.

    Attributes:
        group: in a cluster, the group that the queue joins; the cluster chooses one by default.
    """

    queue: str
    policy: QueuePolicy = QueuePolicy()
    group: str | None = None


CREATE_QUEUE: Final = Verb(
    name="create_queue", request=CreateQueue, path="queues/create", right="admin", spread="own", command="queue create"
)


class UpdateQueue(Request[Done], frozen=True, kw_only=True):
    """Change fields of a queue's policy.

    Attributes:
        policy: the fields to change, by name.
    """

    queue: str
    policy: PolicyChanges


UPDATE_QUEUE: Final = Verb(
    name="update_queue",
    request=UpdateQueue,
    path="queues/update",
    right="admin",
    repeat="always",
    spread="own",
    command="queue update",
)


class DeleteQueue(Request[Done], frozen=True, kw_only=True):
    """Delete a queue with all its messages, and its dead-letter queue."""

    queue: str


DELETE_QUEUE: Final = Verb(
    name="delete_queue", request=DeleteQueue, path="queues/delete", right="admin", spread="own", command="queue delete"
)


class PauseQueue(Request[Done], frozen=True, kw_only=True):
    """Stop delivery from a queue, or from one fairness key.

    Attributes:
        key: the fairness key to pause; the whole queue by default.
    """

    queue: str
    key: RequestKey | None = None


PAUSE: Final = Verb(
    name="pause",
    request=PauseQueue,
    path="queues/pause",
    right="admin",
    repeat="always",
    spread="all",
    command="queue pause",
)


class ResumeQueue(Request[Done], frozen=True, kw_only=True):
    """Resume delivery from a queue, or from one fairness key.

    Attributes:
        key: the fairness key to resume; the whole queue by default.
    """

    queue: str
    key: RequestKey | None = None


RESUME: Final = Verb(
    name="resume",
    request=ResumeQueue,
    path="queues/resume",
    right="admin",
    repeat="always",
    spread="all",
    command="queue resume",
)


class MessageCount(Shape, frozen=True, kw_only=True):
    """The number of messages that were affected."""

    count: int


class PurgeQueue(Request[MessageCount], frozen=True, kw_only=True):
    """Delete all messages of a queue that are not leased."""

    queue: str


PURGE: Final = Verb(
    name="purge", request=PurgeQueue, path="queues/purge", right="admin", spread="all", command="queue purge"
)


class QueueList(Shape, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: list[QueueView]


class ListQueues(Request[QueueList], frozen=True, kw_only=True):
    """Return all queues in short."""


QUEUES: Final = Verb(
    name="queues",
    request=ListQueues,
    path="queues/list",
    right="admin",
    about="every",
    repeat="always",
    command="queue list",
)


class InspectQueue(Request[QueueView], frozen=True, kw_only=True):
    """Return a queue with its fairness keys, throttles, registered consumers and sinks."""

    queue: str


INSPECT: Final = Verb(
    name="inspect",
    request=InspectQueue,
    path="queues/inspect",
    right="admin",
    repeat="always",
    spread="all",
    command="queue inspect",
)


class GetStats(Request[QueueView], frozen=True, kw_only=True):
    """Return a queue in short, or with some of its fairness keys.

    Attributes:
        keys_max: how many fairness keys to include, those with the most messages first.
    """

    queue: str
    keys_max: int = 0


STATS: Final = Verb(
    name="stats",
    request=GetStats,
    path="queue/stats",
    right="consume",
    repeat="always",
    spread="all",
    command="stats",
)
