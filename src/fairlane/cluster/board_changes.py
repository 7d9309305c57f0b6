"""Changes of the board that callers ask for: queues are created, deleted, moved and split, and nodes are drained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from fairlane.cluster import placement
from fairlane.cluster.entries import GROUP, NODE, SPLIT, BoardView, GroupEntry, SplitEntry, encode, groups_by_queue
from fairlane.cluster.shared_board import SharedBoard
from fairlane.errors import InvalidArgument, NodeNotFound, QueueNotFound, StoreFailed
from fairlane.model.names import DLQ_SUFFIX
from fairlane.model.partitions import place_in

_ATTEMPTS: Final = 20


class BoardChanges:
    """Changes the board on behalf of callers."""

    def __init__(self, board: SharedBoard, *, groups_max: int, live: Callable[[], Collection[str]]) -> None:
        """Prepare.

        Args:
            board: the board.
            groups_max: how many groups new queues create before they join existing ones.
            live: returns the nodes that live.
        """
        self._board = board
        self._groups_max = groups_max
        self._live = live

    async def list_queue(self, queue: str, *, group: str | None = None) -> None:
        """Put a queue on the board, in a group of its own or in the named one.

        Raises InvalidArgument if it can't be in that group. Raises StoreFailed if it may or may not be on the board.
        """
        for _ in range(_ATTEMPTS):
            view = await self._board.refresh()
            name, entry = placement.group_for(queue, view.groups, groups_max=self._groups_max, wanted=group)
            if entry is view.groups.get(name):
                return
            if entry.home is None:
                moves = placement.homeless({**view.groups, name: entry}, view.nodes, self._live())
                entry = next((move.entry for move in moves if move.group == name), entry)
            if await self._board.put(GROUP + name, encode(entry), version=view.versions.get(GROUP + name)) is not None:
                await self._board.refresh()
                return
        raise StoreFailed(f"Other nodes changed the groups on the board {_ATTEMPTS} times in a row.")

    async def unlist_queue(self, queue: str) -> None:
        """Remove a deleted queue from the board, and its group if it was the last one in it.

        A partition stays while its queue has it, because the queue may have been split again meanwhile. Raises
        StoreFailed if it may or may not be on the board.
        """
        group = groups_by_queue(self._board.view.groups).get(queue)
        if group is None:
            return

        def edit(view: BoardView) -> bytes | None:
            entry = view.groups.get(group)
            if entry is None:
                return None
            left = entry if _is_partition(queue, view) else placement.without(queue, entry)
            return None if left is None else encode(left)

        await self._board.edit(GROUP + group, edit)

    async def move_queue(self, queue: str, node: str) -> None:
        """Move the group of a queue to a node, and keep it there while that node lives.

        Raises:
            QueueNotFound, NodeNotFound, InvalidArgument: there is no such queue or node, or the node takes no groups.
            StoreFailed: the move may or may not be on the board.
        """
        view = await self._board.refresh()
        group = groups_by_queue(view.groups).get(queue.removesuffix(DLQ_SUFFIX))
        if group is None:
            raise QueueNotFound(f"Queue {queue!r:.150} does not exist.")
        _check_known(view, node)
        if node not in self._live() or view.nodes[node].is_draining:
            raise InvalidArgument(f"Node {node!r} takes no groups: it is dead or draining.")

        def edit(now: BoardView) -> bytes | None:
            entry = now.groups.get(group, GroupEntry(queues=[queue]))
            return encode(placement.moved_by_hand(group, entry, node).entry)

        await self._board.edit(GROUP + group, edit)

    async def change_split(self, queue: str, edit: Callable[[SplitEntry | None], SplitEntry | None]) -> BoardView:
        """Change how a queue is split; ``edit`` returns None for a whole queue.

        The partitions are on the board already, or still. Returns the board afterwards. Raises StoreFailed if the
        change may or may not be on the board.
        """

        def edited(view: BoardView) -> bytes | None:
            entry = edit(view.splits.get(queue))
            return None if entry is None else encode(entry)

        return await self._board.edit(SPLIT + queue, edited)

    async def drain_node(self, node: str, *, is_draining: bool) -> None:
        """Drain a node, or let it own groups again.

        Raises NodeNotFound if there is no such node. Raises StoreFailed if the change may or may not be on the board.
        """
        _check_known(await self._board.refresh(), node)

        def edit(view: BoardView) -> bytes | None:
            entry = view.nodes.get(node)
            return None if entry is None else encode(msgspec.structs.replace(entry, is_draining=is_draining))

        await self._board.edit(NODE + node, edit)


def _check_known(view: BoardView, node: str) -> None:
    if node not in view.nodes:
        raise NodeNotFound(f"Node {node!r:.150} is not in the cluster; its nodes are {', '.join(sorted(view.nodes))}.")


def _is_partition(queue: str, view: BoardView) -> bool:
    whole, at = place_in(queue)
    split = view.splits.get(whole)
    return at is not None and split is not None and at < split.made
