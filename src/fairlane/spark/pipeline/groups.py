"""How a broker is asked about the journals that tables are made from: as a server on its own, or group by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairlane.errors import InvalidArgument, QueueNotFound
from fairlane.model.limits import KEYS_SHOWN_MAX
from fairlane.model.names import DLQ_SUFFIX, dlq_of, is_dlq
from fairlane.model.partitions import MARK, partition_name, served_name
from fairlane.model.views import ClusterView, GroupView, QueueView
from fairlane.spark.pipeline.journals import JournalCoverage
from fairlane.verbs.methods.complete import AllVerbs


@dataclass(frozen=True, slots=True)
class GroupJournal:
    """A journal of the tables, and the group of queues that it is of.

    Attributes:
        broker: the broker, or a client of its server or cluster.
        journal: how far it is in the tables.
        queue: the name of a queue of the group, to read its journal; None on a server on its own.
        group: the group as the cluster has it now; None on a server on its own, and if the group is gone.
        splits: the names of the split queues of the cluster.
        is_gone: whether the cluster has no such group any more.
    """

    broker: AllVerbs[Any]
    journal: JournalCoverage
    queue: str | None = None
    group: GroupView | None = None
    splits: frozenset[str] = frozenset()
    is_gone: bool = False

    def names(self, known: Iterable[str]) -> list[str]:
        """Return the names of its queues in the journal; ``known`` are those that the tables have."""
        if self.is_gone:
            return []
        if self.group is None:
            return [view.name for view in self.broker.queues()]
        own = [served_name(name) for name in self.group.queues]
        return sorted({*own, *map(dlq_of, own), *known})

    def view(self, name: str) -> QueueView | None:
        """Return one of its queues with its keys; None if it does not exist."""
        plain = name.removesuffix(DLQ_SUFFIX)
        asked = partition_name(name, 0) if plain in self.splits and MARK not in name else name
        try:
            return self.broker.queue(asked, keys_max=KEYS_SHOWN_MAX)
        except QueueNotFound:
            return None


def groups_of(broker: AllVerbs[Any], journals: Sequence[JournalCoverage], queue: str | None) -> list[GroupJournal]:
    """Return how a broker is asked about journals: all, or only that of the group of a queue.

    Raises:
        InvalidArgument: the broker is no cluster, or it has groups that the tables do not have yet.
        QueueNotFound: the cluster has no such queue.
    """
    view = _cluster(broker) if queue is not None or len(journals) > 1 or journals[0].group else None
    if view is None and len(journals) > 1:
        raise InvalidArgument(
            f"The tables come from {len(journals)} journals of a cluster, but the server is not a node of a cluster. "
            "Pass the addresses of its nodes with --server."
        )
    if view is None:
        return [GroupJournal(broker, journals[0], queue)]
    return list(_groups(broker, journals, view, queue))


def _cluster(broker: AllVerbs[Any]) -> ClusterView | None:
    try:
        return broker.cluster()
    except InvalidArgument:  # it is a server on its own
        return None


def _groups(
    broker: AllVerbs[Any], journals: Sequence[JournalCoverage], view: ClusterView, queue: str | None
) -> Iterator[GroupJournal]:
    wanted = None if queue is None else _wanted(view, queue)
    if len(journals) == 1 and wanted is not None:  # an export tells the group only if it is in a folder of its name
        known: dict[str, GroupView | None] = {journals[0].journal_id: wanted}
    else:
        known = {journal.journal_id: _group(view, journal.group) for journal in journals}
    there = {group.name for group in known.values() if group is not None}
    needed = [wanted] if wanted is not None else [each for each in view.groups if each.queues and len(journals) > 1]
    if lacking := [group.name for group in needed if group.name not in there]:
        raise InvalidArgument(f"The tables lack the journal of group {lacking[0]}. Run 'fairlane pipeline run' first.")
    splits = frozenset(view.splits)
    for journal in journals:
        group = known[journal.journal_id]
        if wanted is not None and group != wanted:
            continue
        if group is None:
            yield GroupJournal(broker, journal, is_gone=True)
            continue
        first = group.queues[0]
        yield GroupJournal(broker, journal, partition_name(first, 0) if first in splits else first, group, splits)


def _wanted(view: ClusterView, queue: str) -> GroupView:
    """Return the group of a queue."""
    found = _group(view, served_name(queue))
    if found is None:
        raise QueueNotFound(f"Queue {queue!r:.150} does not exist.")
    return found


def _group(view: ClusterView, name: str) -> GroupView | None:
    """Return the group of a name, or of a queue of that name."""
    plain = name.removesuffix(DLQ_SUFFIX) if is_dlq(name) else name
    found = [group for group in view.groups if group.queues and (group.name == name or plain in group.queues)]
    return found[0] if found else None
