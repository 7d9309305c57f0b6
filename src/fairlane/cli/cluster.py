"""The commands ``cluster …``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import click

from fairlane.cli.durations import words
from fairlane.cli.interaction import confirm
from fairlane.cli.output import Table, answer
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.queues import YES
from fairlane.cli.session import Session, pass_session
from fairlane.model.partitions import Split, partition_name, served_name
from fairlane.model.views import ClusterView, GroupView, NodeView

if TYPE_CHECKING:  # only who talks to a server needs a client
    from fairlane.client import Client

_NODE_NUMBERS = frozenset({"groups", "load", "takeovers"})


@contextmanager
def _client(session: Session) -> Iterator[Client]:
    if session.place.is_embedded:
        raise click.UsageError("A folder has one broker and no nodes: ask a server, without --data.")
    with session.door() as door:
        yield cast("Client", door)


@click.group(name="cluster")
def cluster_command() -> None:
    """Look at the nodes of a cluster, move and split queues, and drain nodes."""


@cluster_command.command()
@pass_session
def status(session: Session) -> None:
    """Show nodes, which of them has which queues, and which queues are split."""
    with _client(session) as client:
        view = client.cluster()
    found = [_of_nodes(view), _of_groups(view), *([_of_splits(view)] if view.splits else [])]
    answer(view, found, is_json=session.is_json)


@cluster_command.command()
@QUEUE
@click.argument("node")
@pass_session
def move(session: Session, queue: str, node: str) -> None:
    """Let a queue, and all of its group, go to NODE, and stay there while it lives. Leases stay good."""
    with _client(session) as client:
        client.move_queue(queue, node)
    answer({"queue": queue, "node": node}, f"Queue {queue} goes to node {node}.", is_json=session.is_json)


@cluster_command.command()
@QUEUE
@click.argument("partitions", type=int)
@pass_session
def split(session: Session, queue: str, partitions: int) -> None:
    """Split a queue into so many PARTITIONS, so that as many nodes can share its work.

    Producers and consumers go on under the name of the queue. With fewer than there are, those beyond take nothing new;
    say it again once they are empty, and they are gone.
    """
    with _client(session) as client:
        made = client.split_queue(queue, partitions)
    answer(made, _told(queue, made), is_json=session.is_json)


@cluster_command.command()
@click.argument("node")
@click.option("--undo", is_flag=True, help="Let the node have queues again.")
@YES
@pass_session
def drain(session: Session, node: str, *, undo: bool, is_sure: bool) -> None:
    """Let everything that NODE has go to other nodes, so that it can be stopped."""
    if not undo:
        confirm(f"Let everything that node {node} has go to others?", is_sure=is_sure)
    with _client(session) as client:
        client.drain_node(node, is_draining=not undo)
    told = f"Node {node} may have queues again." if undo else f"What node {node} has goes to others."
    answer({"node": node, "is_draining": not undo}, told, is_json=session.is_json)


def _of_nodes(view: ClusterView) -> Table:
    rows = [
        [
            node.name + (" (answers)" if node.name == view.node else ""),
            _state_of(node),
            node.address,
            str(sum(group.owner == node.name for group in view.groups)),
            f"{sum(node.groups.values()):.1f}",
            str(node.takeovers),
            node.version,
        ]
        for node in view.nodes
    ]
    columns = ["node", "state", "address", "groups", "load", "takeovers", "version"]
    return Table(columns, rows, title="Nodes", numbers=_NODE_NUMBERS)


def _state_of(node: NodeView) -> str:
    if not node.is_live:
        return f"dead, silent for {words(node.silent_ms)}"
    return "draining" if node.is_draining else "live"


def _of_groups(view: ClusterView) -> Table:
    rows = [
        [group.name, ", ".join(group.queues), _where(group), str(group.moves), "pinned" if group.is_pinned else ""]
        for group in view.groups
    ]
    return Table(["group", "queues", "node", "moves", ""], rows, title="Groups", numbers=frozenset({"moves"}))


def _of_splits(view: ClusterView) -> Table:
    groups = {queue: group for group in view.groups for queue in group.queues}
    rows = []
    for queue, made in view.splits.items():
        for at in range(made.made):
            name = partition_name(queue, at)
            group = groups.get(served_name(name))
            where = "nowhere yet" if group is None else _where(group)
            rows.append([queue, name, where, "" if at < made.partitions else "takes nothing new"])
    return Table(["queue", "partition", "node", ""], rows, title="Split queues")


def _told(queue: str, made: Split) -> str:
    if made.made == 1:
        return f"Queue {queue} is whole."
    if made.partitions == made.made:
        return f"Queue {queue} has {made.made} partitions."
    taking = "only the first takes" if made.partitions == 1 else f"the first {made.partitions} take"
    return (
        f"Queue {queue} has {made.made} partitions, of which {taking} new messages. "
        "Say this again once the others are empty, and they are gone."
    )


def _where(group: GroupView) -> str:
    if group.owner is not None and group.owner == group.home:
        return group.owner
    return f"on its way to {group.home}" if group.home is not None else "nowhere yet"
