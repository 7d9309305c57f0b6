"""Verbs about a cluster: look at it, move and split queues, drain nodes."""

from __future__ import annotations

from typing import Final

from fairlane.model.partitions import Split
from fairlane.model.views import ClusterView
from fairlane.verbs.verb import Done, Request, Verb


class GetCluster(Request[ClusterView], frozen=True, kw_only=True):
    """Return the nodes and groups of the cluster."""


CLUSTER: Final = Verb(
    name="cluster",
    request=GetCluster,
    path="cluster",
    right="admin",
    about="every",
    repeat="always",
    command="cluster status",
)


class MoveQueue(Request[Done], frozen=True, kw_only=True):
    """Move the group of a queue to a node, and keep it there while the node is alive."""

    queue: str
    node: str


MOVE_QUEUE: Final = Verb(
    name="move_queue",
    request=MoveQueue,
    path="cluster/move",
    right="admin",
    about="group",
    repeat="always",
    command="cluster move",
)


class SplitQueue(Request[Split], frozen=True, kw_only=True):
    """Split a queue into partitions, or reduce the number of partitions that take new messages."""

    queue: str
    partitions: int


SPLIT_QUEUE: Final = Verb(
    name="split_queue",
    request=SplitQueue,
    path="cluster/split",
    right="admin",
    repeat="always",
    spread="own",
    command="cluster split",
)


class DrainNode(Request[Done], frozen=True, kw_only=True):
    """Move all groups of a node to other nodes, or let it own groups again.

    Attributes:
        is_draining: false ends the drain.
    """

    node: str
    is_draining: bool = True


DRAIN_NODE: Final = Verb(
    name="drain_node",
    request=DrainNode,
    path="cluster/drain",
    right="admin",
    about="every",
    repeat="always",
    command="cluster drain",
)
