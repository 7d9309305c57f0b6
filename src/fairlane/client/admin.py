"""Verbs for operators, for threads. Made from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlane.client.asking import Asking
from fairlane.client.conversions import checked
from fairlane.model.message import Key
from fairlane.model.partitions import Split
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.model.views import (
    ClusterView,
    DeadLetterFilter,
    HookStatistics,
    HookTrial,
    QueueView,
    ReaderView,
    RedriveView,
    ThrottleView,
)
from fairlane.verbs.cluster import DrainNode, GetCluster, MoveQueue, SplitQueue
from fairlane.verbs.config import (
    ConfigValues,
    GetHookStatistics,
    ListConfig,
    ListThrottles,
    SetConfig,
    ThrottleList,
    TryHook,
)
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList, StopRedrive
from fairlane.verbs.journal import Events, ListReaders, ReaderList, ReadJournal, RemoveReader, SetReader
from fairlane.verbs.queues import (
    CreateQueue,
    DeleteQueue,
    GetStats,
    InspectQueue,
    ListQueues,
    MessageCount,
    PauseQueue,
    PurgeQueue,
    QueueList,
    ResumeQueue,
    UpdateQueue,
)

_EVERYTHING = DeadLetterFilter()


class AdminVerbs(Asking):
    """What operators do with queues, config, hooks, dead letters and the journal; see the broker's verbs."""

    def create_queue(
        self, queue: str, policy: QueuePolicy | Mapping[str, object] | None = None, *, group: str | None = None
    ) -> None:
        """Make a queue, and its dead-letter queue ``<queue>.dlq`` with it.

        In a cluster, queues that are to forward to each other in one commit are made in one ``group``.
        """
        self._call("create_queue", CreateQueue(queue=queue, policy=_policy(policy), group=group))

    def update_queue(self, queue: str, policy: QueuePolicy | Mapping[str, object]) -> None:
        """Change the policy of a queue while it is in use: as a whole, or only the fields of a mapping."""
        fields = msgspec.structs.asdict(policy) if isinstance(policy, QueuePolicy) else dict(policy)
        self._call("update_queue", UpdateQueue(queue=queue, policy=fields))

    def delete_queue(self, queue: str) -> None:
        """Remove a queue with everything in it, its dead letters included. Consumers that wait there are refused."""
        self._call("delete_queue", DeleteQueue(queue=queue))

    def pause(self, queue: str, *, key: Key | None = None) -> None:
        """Hand out nothing of a queue, or of one fairness key and those below it, until it is resumed."""
        self._call("pause", PauseQueue(queue=queue, key=key))

    def resume(self, queue: str, *, key: Key | None = None) -> None:
        """Undo ``pause``."""
        self._call("resume", ResumeQueue(queue=queue, key=key))

    def purge(self, queue: str) -> int:
        """Remove all messages of a queue that are not leased, and return how many those were."""
        answer: MessageCount = self._call("purge", PurgeQueue(queue=queue))
        return answer.count

    def queues(self) -> list[QueueView]:
        """Return all queues in short, by name."""
        answer: QueueList = self._call("queues", ListQueues())
        return answer.queues

    def queue(self, queue: str, *, keys_max: int = 0) -> QueueView:
        """Return a queue in short, or with up to ``keys_max`` of its fairness keys, those with the most messages."""
        answer: QueueView = self._call("stats", GetStats(queue=queue, keys_max=keys_max))
        return answer

    def inspect(self, queue: str) -> QueueView:
        """Return a queue with its fairness keys and throttles. Takes time in proportion to its keys."""
        answer: QueueView = self._call("inspect", InspectQueue(queue=queue))
        return answer

    # ---------------------------------------------------------------------------------------------------------- config

    def set_config(self, key: str, value: str | None) -> None:
        """Set a config value, or with None remove it. It acts at once on everything that waits."""
        self.set_config_many({key: value})

    def set_config_many(self, values: Mapping[str, str | None]) -> None:
        """Set config values, or with None remove them: all of them in one commit or none."""
        self._call("set_config", SetConfig(values=dict(values)))

    def set_throttle(self, name: str, *, rate: float | None, burst: float | None = None) -> None:
        """Set a throttle in one commit: tokens a second, and the most it saves up. Without a rate it is lifted."""
        burst_text = None if burst is None or rate is None else repr(burst)
        rate_text = None if rate is None else repr(rate)
        self.set_config_many({f"throttle:{name}:burst": burst_text, f"throttle:{name}:rate": rate_text})

    def get_config(self, key: str) -> str | None:
        """Return a config value, None if there is none."""
        values = self.list_config(key)
        return values.get(key)

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose keys begin with a prefix, by key."""
        answer: ConfigValues = self._call("list_config", ListConfig(prefix=prefix))
        return answer.values

    def throttles(self) -> list[ThrottleView]:
        """Return all throttles that have a rate, with the tokens they have now."""
        answer: ThrottleList = self._call("throttles", ListThrottles())
        return answer.throttles

    # ----------------------------------------------------------------------------------------------------------- hooks

    def try_on_enqueue(
        self, queue: str, script: str, *, headers: Mapping[str, str], payload_size: int = 0
    ) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away. Nothing is enqueued, no hook is changed."""
        request = TryHook(
            queue=queue, hook="on_enqueue", script=script, headers=dict(headers), payload_size=payload_size
        )
        answer: HookTrial = self._call("try_hook", request)
        return answer

    def try_on_failure(
        self, queue: str, script: str, *, headers: Mapping[str, str], attempts: int = 1, error: str = ""
    ) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away. Nothing is nacked, no hook is changed."""
        request = TryHook(
            queue=queue, hook="on_failure", script=script, headers=dict(headers), attempts=attempts, error=error
        )
        answer: HookTrial = self._call("try_hook", request)
        return answer

    def hook_statistics(self, queue: str) -> HookStatistics:
        """Return how the scripts of a queue have done since the broker was opened."""
        answer: HookStatistics = self._call("hook_statistics", GetHookStatistics(queue=queue))
        return answer

    # ---------------------------------------------------------------------------------------------------- dead letters

    def redrive(
        self,
        dlq: str,
        *,
        wanted: DeadLetterFilter = _EVERYTHING,
        count: int | None = None,
        rate: float | None = None,
        is_dry_run: bool = False,
    ) -> RedriveView:
        """Start to move dead letters back to their queue, through its enqueue flow. ``redrive_view`` shows progress."""
        request = Redrive(queue=dlq, wanted=wanted, count=count, rate=rate, is_dry_run=is_dry_run)
        answer: RedriveView = self._call("redrive", request)
        return answer

    def redrive_view(self, redrive_id: str) -> RedriveView:
        """Return how far a redrive is."""
        answer: RedriveView = self._call("redrive_view", GetRedrive(id=redrive_id))
        return answer

    def redrives(self) -> list[RedriveView]:
        """Return all redrives since the broker was opened, the latest last."""
        answer: RedriveList = self._call("redrives", ListRedrives())
        return answer.redrives

    def stop_redrive(self, redrive_id: str) -> RedriveView:
        """Stop a redrive. What it has moved stays moved."""
        answer: RedriveView = self._call("stop_redrive", StopRedrive(id=redrive_id))
        return answer

    # --------------------------------------------------------------------------------------------------------- journal

    def read_journal(self, after: int = 0, *, count: int = 1_000, queue: str | None = None) -> Events:
        """Return about so many events of the journal after a position, and the position they reach to.

        In a cluster each group of queues has a journal; there ``queue`` says which, here and below.
        """
        request = ReadJournal(after=after, count=count, queue=queue)
        answer: Events = self._call("read_journal", request)
        return answer

    def set_reader(self, name: str, position: int, *, queue: str | None = None) -> None:
        """Register a reader of the journal, or say how far it is: the journal after that is kept for it."""
        self._call("set_reader", SetReader(name=name, position=position, queue=queue))

    def remove_reader(self, name: str, *, queue: str | None = None) -> None:
        """Keep nothing for a reader any more."""
        self._call("remove_reader", RemoveReader(name=name, queue=queue))

    def readers(self, *, queue: str | None = None) -> list[ReaderView]:
        """Return the registered readers of the journal, and how far behind they are."""
        answer: ReaderList = self._call("readers", ListReaders(queue=queue))
        return answer.readers

    # --------------------------------------------------------------------------------------------------------- cluster

    def cluster(self) -> ClusterView:
        """Return the nodes of a cluster, and which groups of queues each has, as the node that answers sees it."""
        answer: ClusterView = self._call("cluster", GetCluster())
        return answer

    def move_queue(self, queue: str, node: str) -> None:
        """Let a queue, and those of its group, go to a node and stay there while that lives. Leases go with them."""
        self._call("move_queue", MoveQueue(queue=queue, node=node))

    def split_queue(self, queue: str, partitions: int) -> Split:
        """Split a queue into so many partitions, each of which another node may have, and return how it is split then.

        Producers and consumers go on under its name. With fewer than there are, those beyond take nothing new; called
        again once these are empty, they are gone. What was interrupted is repeated by the same call.
        """
        answer: Split = self._call("split_queue", SplitQueue(queue=queue, partitions=partitions))
        return answer

    def drain_node(self, node: str, *, is_draining: bool = True) -> None:
        """Let all that a node has go to others, so that it can be stopped; or let it have queues again."""
        self._call("drain_node", DrainNode(node=node, is_draining=is_draining))


def _policy(policy: QueuePolicy | Mapping[str, object] | None) -> QueuePolicy:
    fields = msgspec.structs.asdict(policy) if isinstance(policy, QueuePolicy) else dict(policy or {})
    return checked(lambda: policy_from(fields))
