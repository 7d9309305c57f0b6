"""The commands ``cluster``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import click

from fairlane.cli.formatting import duration
from fairlane.cli.interaction import confirm
from fairlane.cli.output import Table
from fairlane.cli.parameters import QUEUE, YES
from fairlane.cli.session import Session, pass_session
from fairlane.model.partitions import Split, partition_name, served_name
from fairlane.model.views import ClusterView, GroupView, NodeView

if TYPE_CHECKING:
    from fairlane.client import Client

_NODE_NUMBERS = frozenset({"groups", "load", "takeovers"})
_NO_NODE = "not assigned yet"


@contextmanager
def _client(session: Session) -> Iterator[Client]:
    if session.endpoint.is_embedded:
        raise click.UsageError("A data folder has no nodes; leave out --data and connect to a server.")
    with session.broker() as broker:
        yield cast("Client", broker)


@click.group(name="cluster")
def cluster_command() -> None:
    """Show the nodes of a cluster, move and split queues, and drain nodes."""


@cluster_command.command()
@pass_session
def status(session: Session) -> None:
    """Show the nodes, the queues that each of them owns, and the split queues."""
    with _client(session) as client:
        view = client.cluster()
    found = [_node_table(view), _group_table(view), *([_split_table(view)] if view.splits else [])]
    session.answer(view, found)


@cluster_command.command()
@QUEUE
@click.argument("node")
@pass_session
def move(session: Session, queue: str, node: str) -> None:
    """Move a queue and its group to NODE.

    The group stays there as long as the node is alive. Leases remain valid.
    """
    with _client(session) as client:
        client.move_queue(queue, node)
    session.answer({"queue": queue, "node": node}, f'Moving queue "{queue}" to node "{node}".')


@cluster_command.command()
@QUEUE
@click.argument("partitions", type=int)
@pass_session
def split(session: Session, queue: str, partitions: int) -> None:
    """Split a queue into PARTITIONS, so that several nodes can share its work.

    Producers and consumers keep using the name of the queue. With fewer partitions than before, the surplus ones
    accept no new messages; repeat the command once they are empty to remove them.
    """
    with _client(session) as client:
        made = client.split_queue(queue, partitions)
    session.answer(made, _split_text(queue, made))


@cluster_command.command()
@click.argument("node")
@click.option("--undo", is_flag=True, help="Allow the node to own queues again.")
@YES
@pass_session
def drain(session: Session, node: str, *, undo: bool, is_sure: bool) -> None:
    """Move all queues of NODE to other nodes, so that it can be stopped."""
    if not undo:
        confirm(f'Move all queues of node "{node}" to other nodes?', is_sure=is_sure)
    with _client(session) as client:
        client.drain_node(node, is_draining=not undo)
    text = f'Node "{node}" can own queues again.' if undo else f'Draining node "{node}".'
    session.answer({"node": node, "is_draining": not undo}, text)


def _node_table(view: ClusterView) -> Table:
    rows = [
        [
            node.name + (" (this answer)" if node.name == view.node else ""),
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
        return f"dead, silent for {duration(node.silent_ms)}"
    return "draining" if node.is_draining else "live"


def _group_table(view: ClusterView) -> Table:
    rows = [
        [group.name, ", ".join(group.queues), _owner_of(group), str(group.moves), "pinned" if group.is_pinned else ""]
        for group in view.groups
    ]
    return Table(["group", "queues", "node", "moves", ""], rows, title="Groups", numbers=frozenset({"moves"}))


def _split_table(view: ClusterView) -> Table:
    groups = {queue: group for group in view.groups for queue in group.queues}
    rows = []
    for queue, made in view.splits.items():
        for at in range(made.made):
            name = partition_name(queue, at)
            group = groups.get(served_name(name))
            owner = _NO_NODE if group is None else _owner_of(group)
            rows.append([queue, name, owner, "" if at < made.partitions else "accepts no new messages"])
    return Table(["queue", "partition", "node", ""], rows, title="Split queues")


def _split_text(queue: str, made: Split) -> str:
    if made.made == 1:
        return f'Queue "{queue}" is not split.'
    if made.partitions == made.made:
        return f'Queue "{queue}" has {made.made} partitions.'
    open_ones = "only the first accepts" if made.partitions == 1 else f"the first {made.partitions} accept"
    return (
        f'Queue "{queue}" has {made.made} partitions; {open_ones} new messages. '
        "Repeat the command once the others are empty to remove them."
    )


def _owner_of(group: GroupView) -> str:
    if group.owner is not None and group.owner == group.home:
        return group.owner
    return f"moving to {group.home}" if group.home is not None else _NO_NODE
