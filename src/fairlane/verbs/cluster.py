"""Verbs about a cluster: look at it, move and split queues, drain nodes."""

from __future__ import annotations

from fairlane.model.partitions import Split
from fairlane.model.views import ClusterView
from fairlane.verbs.verb import Done, Request, Verb


@Verb(name="cluster", path="cluster", right="observe", about="every", repeat="always", command="cluster status")
class GetCluster(Request[ClusterView], frozen=True, kw_only=True):
    """Return the nodes and groups of the cluster."""


@Verb(name="move_queue", path="cluster/move", right="admin", about="group", repeat="always", command="cluster move")
class MoveQueue(Request[Done], frozen=True, kw_only=True):
    """Move the group of a queue to a node, and keep it there while the node is alive."""

    queue: str
    node: str


@Verb(name="split_queue", path="cluster/split", right="admin", repeat="always", spread="own", command="cluster split")
class SplitQueue(Request[Split], frozen=True, kw_only=True):
    """Split a queue into partitions, or reduce the number of partitions that take new messages."""

    queue: str
    partitions: int


@Verb(name="drain_node", path="cluster/drain", right="admin", about="every", repeat="always", command="cluster drain")
class DrainNode(Request[Done], frozen=True, kw_only=True):
    """Move all groups of a node to other nodes, or let it own groups again.

    Attributes:
        is_draining: false ends the drain.
    """

    node: str
    is_draining: bool = True
