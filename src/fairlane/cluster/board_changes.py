"""Changes of the board that somebody asks for: queues that are made, gone or moved, and nodes that are drained."""

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
    """Changes a board, for a node that has been asked to."""

    def __init__(self, board: SharedBoard, *, groups_max: int, live: Callable[[], Collection[str]]) -> None:
        """Change nothing yet.

        Args:
            board: the board.
            groups_max: how many groups new queues make, before they join those there are.
            live: tells which nodes live.
        """
        self._board = board
        self._groups_max = groups_max
        self._live = live

    async def list_queue(self, queue: str, *, group: str | None = None) -> None:
        """Let a queue be on the board, in a group of its own or in one that is named.

        Raises:
            InvalidArgument: it can't be there.
            StoreFailed: nobody knows whether it is.
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
        raise StoreFailed("Others changed the groups on the board again and again.")

    async def unlist_queue(self, queue: str) -> None:
        """Take a queue from the board, that is gone, and its group if it was the last in it.

        A partition stays that its queue has, as somebody may have split that meanwhile.

        Raises:
            StoreFailed: nobody knows whether it is on the board.
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
        """Let the group of a queue go to a node, and stay there while that lives.

        Raises:
            QueueNotFound, NodeNotFound, InvalidArgument: there is no such queue, or node, or it is to be drained.
            StoreFailed: nobody knows whether it goes.
        """
        view = await self._board.refresh()
        group = groups_by_queue(view.groups).get(queue.removesuffix(DLQ_SUFFIX))
        if group is None:
            raise QueueNotFound(f"There is no queue {queue!r:.150}.")
        _check_known(view, node)
        if node not in self._live() or view.nodes[node].is_draining:
            raise InvalidArgument(f"The node {node!r} does not take groups: it is dead, or is being drained.")

        def edit(now: BoardView) -> bytes | None:
            entry = now.groups.get(group, GroupEntry(queues=[queue]))
            return encode(placement.moved_by_hand(group, entry, node).entry)

        await self._board.edit(GROUP + group, edit)

    async def change_split(self, queue: str, edit: Callable[[SplitEntry | None], SplitEntry | None]) -> BoardView:
        """Let a queue be split otherwise than it is now, or with None be whole.

        Its partitions are on the board already, or still. Returns the board afterwards.

        Raises:
            StoreFailed: nobody knows whether it is.
        """

        def edited(view: BoardView) -> bytes | None:
            entry = edit(view.splits.get(queue))
            return None if entry is None else encode(entry)

        return await self._board.edit(SPLIT + queue, edited)

    async def drain_node(self, node: str, *, is_draining: bool) -> None:
        """Let the groups of a node go elsewhere, or let it have groups again.

        Raises:
            NodeNotFound: there is no such node.
            StoreFailed: nobody knows whether they go.
        """
        _check_known(await self._board.refresh(), node)

        def edit(view: BoardView) -> bytes | None:
            entry = view.nodes.get(node)
            return None if entry is None else encode(msgspec.structs.replace(entry, is_draining=is_draining))

        await self._board.edit(NODE + node, edit)


def _check_known(view: BoardView, node: str) -> None:
    if node not in view.nodes:
        raise NodeNotFound(f"There is no node {node!r:.150}; there are {', '.join(sorted(view.nodes))}.")


def _is_partition(queue: str, view: BoardView) -> bool:
    whole, at = place_in(queue)
    split = view.splits.get(whole)
    return at is not None and split is not None and at < split.made
