"""A store of one broker becomes a group of a cluster, with its queues, config and API keys.

The group is complete before the board names it, so nodes that run meanwhile open it as they open any other group.
Config goes to the board first: a node brings each group that it opens up to the config on the board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from fairlane.assembly import group_url, open_board, open_store, shown_url
from fairlane.broker.engine.recovery import recover
from fairlane.cluster.entries import CONFIG, GROUP, BoardView, ConfigEntry, GroupEntry, encode, groups_by_queue, view_of
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.model.broker_limits import Limits
from fairlane.model.names import is_dlq
from fairlane.model.partitions import MARK
from fairlane.ports.board import Board
from fairlane.store_copy import CopyReport, copy_store

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
_OWNER = "copy"
_HEARTBEAT_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A group that was made of a store.

    Attributes:
        group: its name.
        queues: its queues.
        copy: what was copied.
        kept: the config keys that the cluster had already with other values, which stay.
    """

    group: str
    queues: tuple[str, ...]
    copy: CopyReport
    kept: tuple[str, ...]


def adopt_store(source: str, cluster: str, progress: Progress = lambda _done, _all: None) -> Adopted:
    """Copy a store that no broker has open into a cluster, as a new group.

    Args:
        source: a folder or a URL.
        cluster: the URL of the cluster. Its nodes may run.
        progress: called while something is read or copied.

    Raises:
        InvalidArgument: the cluster has one of the queues, or can't have them.
        StoreLocked: a broker has the store open.
        StoreDamaged, StoreCorrupt: the source is damaged, or the copy does not equal it.
        StoreFailed: the source, the store of the group or the board can't be read or written; or the cluster created
            one of the queues meanwhile, and keeps it.
    """
    queues, config = _contents(source)
    with closing(open_board(cluster)) as board:
        view = view_of(board.read())
        group = _group_for(queues, view)
        url = group_url(cluster, group, owner=_OWNER, heartbeat_timeout_ms=_HEARTBEAT_TIMEOUT_MS)
        copy = copy_store(source, url, progress)
        _check_unlisted(board, queues, url)  # the copy may have taken long
        kept = _put_config(board, config)
        if board.put(GROUP + group, encode(GroupEntry(queues=list(queues))), version=None) is None:
            raise StoreFailed(f"Group {group!r} was created meanwhile. Delete the copy at its store, then copy again.")
        try:
            _check_unlisted(board, queues, url, besides=group)  # a node may have read the board before that
        except StoreFailed:
            _withdraw(board, GROUP + group)
            raise
    return Adopted(group=group, queues=queues, copy=copy, kept=kept)


def _contents(source: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the queues and the config of a store."""
    store = open_store(source)
    try:
        ledger, _ = recover(store, Limits())
    finally:
        store.close()
    return tuple(sorted(name for name in ledger.queues if not is_dlq(name))), dict(ledger.config)


def _group_for(queues: tuple[str, ...], view: BoardView) -> str:
    """Return the name of the new group. Raises InvalidArgument if the cluster can't have the queues."""
    if not queues:
        raise InvalidArgument("The store has no queue, so there is nothing to copy into a cluster.")
    present = groups_by_queue(view.groups)
    if (queue := next((queue for queue in queues if queue in present), None)) is not None:
        raise InvalidArgument(f"The cluster already has a queue {queue!r}. Delete it there, or choose another cluster.")
    if (queue := next((queue for queue in queues if MARK in queue), None)) is not None:
        raise InvalidArgument(f"Queue {queue!r} is a partition, which can't be copied into another cluster.")
    return next((queue for queue in queues if queue not in view.groups), f"{queues[0]}-copy")


def _check_unlisted(board: Board, queues: tuple[str, ...], copy: str, *, besides: str | None = None) -> None:
    """Raise StoreFailed if another group of the cluster has one of the queues, and so may have messages in it."""
    groups = {name: entry for name, entry in view_of(board.read()).groups.items() if name != besides}
    present = groups_by_queue(groups)
    if (queue := next((queue for queue in queues if queue in present), None)) is not None:
        raise StoreFailed(
            f"Queue {queue!r} was created in group {present[queue]!r} while the store was copied. The cluster keeps "
            f"that queue, and the copy was not added. Delete the copy at {shown_url(copy)}, delete the queue in the "
            "cluster if its messages are not needed, and copy again."
        )


def _withdraw(board: Board, name: str) -> None:
    """Remove an entry from the board, whatever other nodes have made of it."""
    while (entry := board.read().get(name)) is not None and not board.remove(name, version=entry.version):
        pass


def _put_config(board: Board, config: Mapping[str, str]) -> tuple[str, ...]:
    """Put config values on the board, and return the keys that it has with other values already."""
    kept = []
    for key, value in sorted(config.items()):
        entry = encode(ConfigEntry(value=value))
        if board.put(CONFIG + key, entry, version=None) is None and board.read()[CONFIG + key].value != entry:
            kept.append(key)
    return tuple(kept)
