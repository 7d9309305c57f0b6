"""The cluster as one of its nodes sees it, for operators and their tools."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fairlane.cluster.entries import BoardView
from fairlane.model.views import ClusterView, GroupView, NodeView


def cluster_view(
    view: BoardView,
    *,
    own: str,
    live: Collection[str],
    silent_ms: Callable[[str], int],
    open_here: Collection[str],
) -> ClusterView:
    """Return the nodes, groups and splits of a cluster.

    Args:
        view: the board.
        own: the name of this node.
        live: the nodes that live.
        silent_ms: returns for how long a node has sent no heartbeat.
        open_here: the groups that are open at this node, whatever its entry on the board says.
    """
    nodes = [
        NodeView(
            name=name,
            address=entry.address,
            grpc=entry.grpc,
            is_live=name in live,
            is_draining=entry.is_draining,
            beat=entry.beat,
            silent_ms=silent_ms(name),
            version=entry.version,
            groups=entry.load,
            takeovers=entry.takeovers,
        )
        for name, entry in sorted(view.nodes.items())
    ]
    owners = {group: node.name for node in nodes if node.is_live and node.name != own for group in node.groups}
    owners |= dict.fromkeys(open_here, own)
    groups = [
        GroupView(
            name=name,
            queues=entry.queues,
            home=entry.home,
            owner=owners.get(name),
            is_pinned=entry.is_pinned,
            moves=entry.moves,
        )
        for name, entry in sorted(view.groups.items())
    ]
    splits = {queue: entry.split for queue, entry in sorted(view.splits.items())}
    return ClusterView(node=own, nodes=nodes, groups=groups, splits=splits)
