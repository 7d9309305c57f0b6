"""Methods for operators, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlane.model.message import Key
from fairlane.model.partitions import Split
from fairlane.model.policy import QueuePolicy
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
from fairlane.verbs import cluster, config, dead_letters, journal, keys, queues
from fairlane.verbs.methods.base import Verbs
from fairlane.verbs.methods.conversions import fields_of, given_fields, throttle_values
from fairlane.verbs.stores import StoreSlice, read_request

_EVERYTHING = DeadLetterFilter()


class AdminVerbs(Verbs):
    """What operators do with queues, config, hooks, dead letters, the journal, API keys and a cluster.

    ``by`` names the caller in the journal of a broker in this process; a server uses the name of the API key.
    """

    # ---------------------------------------------------------------------------------------------------------- queues

    def create_queue(
        self,
        queue: str,
        policy: QueuePolicy | Mapping[str, object] | None = None,
        *,
        group: str | None = None,
        by: str | None = None,
    ) -> None:
        """Create a queue, and its dead-letter queue ``<queue>.dlq`` with it.

        In a cluster, queues that forward to each other in one commit need the same ``group``.

        Raises:
            QueueExists, InvalidArgument, HookInvalid: it was not created.
        """
        self.call(queues.CreateQueue(queue=queue, policy=given_fields(policy), group=group), by=by)

    def ensure_queue(
        self,
        queue: str,
        policy: QueuePolicy | Mapping[str, object] | None = None,
        *,
        group: str | None = None,
        by: str | None = None,
    ) -> queues.EnsuredQueue:
        """Create a queue if it does not exist. A queue that exists keeps its policy, so operators' changes last.

        The answer has the queue's policy, whether it was created, and which of the given fields differ from it. Safe to
        call at every start, from many processes at once.

        Raises:
            InvalidArgument, HookInvalid: a field is not valid, and nothing was created.
        """
        return self.call(queues.EnsureQueue(queue=queue, policy=given_fields(policy), group=group), by=by)

    def update_queue(self, queue: str, policy: QueuePolicy | Mapping[str, object], *, by: str | None = None) -> None:
        """Change the policy of a queue while it is in use: as a whole, or only the fields of a mapping.

        Raises:
            QueueNotFound, InvalidArgument, HookInvalid: the policy was not changed.
        """
        self.call(queues.UpdateQueue(queue=queue, policy=fields_of(policy)), by=by)

    def delete_queue(self, queue: str, *, by: str | None = None) -> None:
        """Delete a queue with all its messages and dead letters. Consumers that wait there are refused.

        Raises:
            QueueNotFound, InvalidArgument: it was not deleted.
        """
        self.call(queues.DeleteQueue(queue=queue), by=by)

    def pause(self, queue: str, *, key: Key | None = None, by: str | None = None) -> None:
        """Stop delivery of a queue, or of one fairness key and those below it, until it is resumed.

        Raises:
            QueueNotFound, InvalidArgument: nothing was paused.
        """
        self.call(queues.PauseQueue(queue=queue, key=key), by=by)

    def resume(self, queue: str, *, key: Key | None = None, by: str | None = None) -> None:
        """Resume delivery after ``pause``.

        Raises:
            QueueNotFound, InvalidArgument: nothing was resumed.
        """
        self.call(queues.ResumeQueue(queue=queue, key=key), by=by)

    def purge(self, queue: str, *, with_leased: bool = False) -> int:
        """Delete all messages of a queue, leased ones only if requested. Returns how many.

        The holder of a deleted message learns of it when it settles the message: with ``message_not_found``.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        answer = self.call(queues.PurgeQueue(queue=queue, with_leased=with_leased))
        return answer.count

    def queues(self) -> list[QueueView]:
        """Return all queues in brief, by name."""
        answer = self.call(queues.ListQueues())
        return answer.queues

    def queue(self, queue: str, *, keys_max: int = 0) -> QueueView:
        """Return a queue in brief, or with up to ``keys_max`` of its fairness keys, those with the most messages.

        Raises:
            QueueNotFound, InvalidArgument: there is no answer.
        """
        return self.call(queues.GetStats(queue=queue, keys_max=keys_max))

    def inspect(self, queue: str) -> QueueView:
        """Return a queue with its fairness keys and throttles. Takes time in proportion to its keys.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return self.call(queues.InspectQueue(queue=queue))

    # ---------------------------------------------------------------------------------------------------------- config

    def set_config(
        self,
        key: str,
        value: str | None,
        *,
        owner: str | None = None,
        reason: str | None = None,
        expire_after_ms: int | None = None,
        by: str | None = None,
    ) -> None:
        """Set a config value, or with None remove it. It takes effect at once on everything that waits.

        ``throttle:NAME:rate`` and ``throttle:NAME:burst`` set throttles; ``weight:QUEUE:KEY``, ``cap:QUEUE:KEY``,
        ``rate:QUEUE:KEY`` and ``burst:QUEUE:KEY`` set weights, caps and rates of fairness keys. ``NAME`` and ``KEY``
        may end with a star. Hooks read those under ``queue:QUEUE:`` and ``public:``.

        Args:
            key: the config key.
            value: the value; None removes it.
            owner: who is responsible for the value, recorded in the journal.
            reason: why it is set, recorded in the journal.
            expire_after_ms: after this time the broker restores the value that was set without an expiry before.
            by: the caller, recorded in the journal.

        Raises:
            InvalidArgument: nothing was changed.
        """
        self.set_config_many({key: value}, owner=owner, reason=reason, expire_after_ms=expire_after_ms, by=by)

    def set_config_many(
        self,
        values: Mapping[str, str | None],
        *,
        owner: str | None = None,
        reason: str | None = None,
        expire_after_ms: int | None = None,
        by: str | None = None,
    ) -> None:
        """Set config values, or with None remove them, all in one commit; see ``set_config``.

        Raises:
            InvalidArgument: nothing was changed.
        """
        request = config.SetConfig(values=dict(values), owner=owner, reason=reason, expire_after_ms=expire_after_ms)
        self.call(request, by=by)

    def set_throttle(
        self,
        name: str,
        *,
        rate: float | None,
        burst: float | None = None,
        charge: config.Charge = "message",
        by: str | None = None,
    ) -> None:
        """Set a throttle in one commit: tokens per second, and the most it saves up. Without a rate it is removed.

        A new throttle begins full. Without a burst it saves up one second's worth, at least 1. With the charge ``cost``
        a message takes as many tokens as it costs, instead of one.

        Raises:
            InvalidArgument: nothing was changed.
        """
        self.call(config.SetConfig(values=throttle_values(name, rate, burst, charge)), by=by)

    def get_config(self, key: str) -> str | None:
        """Return a config value, or None if it is not set."""
        return (self.call(config.GetConfig(key=key))).value

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose config keys begin with a prefix."""
        answer = self.call(config.ListConfig(prefix=prefix))
        return answer.values

    def list_temporary_config(self, prefix: str = "") -> list[config.TemporaryValue]:
        """Return the config values that expire and whose config keys begin with a prefix."""
        answer = self.call(config.ListConfig(prefix=prefix))
        return answer.temporary

    def throttles(self) -> list[ThrottleView]:
        """Return all throttles that have a rate, with their current tokens, and all patterns that have one."""
        answer = self.call(config.ListThrottles())
        return answer.throttles

    # ----------------------------------------------------------------------------------------------------------- hooks

    def try_on_enqueue(
        self, queue: str, script: str, *, headers: Mapping[str, str], payload_size: int = 0
    ) -> HookTrial:
        """Run an ``on_enqueue`` script on a sample in a sandbox. Nothing is enqueued, and no hook changes."""
        request = config.TryHook(
            queue=queue, hook="on_enqueue", script=script, headers=dict(headers), payload_size=payload_size
        )
        return self.call(request)

    def try_on_failure(
        self, queue: str, script: str, *, headers: Mapping[str, str], attempts: int = 1, error: str = ""
    ) -> HookTrial:
        """Run an ``on_failure`` script on a sample in a sandbox. No message changes, and no hook changes."""
        request = config.TryHook(
            queue=queue, hook="on_failure", script=script, headers=dict(headers), attempts=attempts, error=error
        )
        return self.call(request)

    def hook_statistics(self, queue: str) -> HookStatistics:
        """Return statistics about the scripts of a queue since the broker was opened.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return self.call(config.GetHookStatistics(queue=queue))

    # ---------------------------------------------------------------------------------------------------- dead letters

    def redrive(
        self,
        dlq: str,
        *,
        wanted: DeadLetterFilter = _EVERYTHING,
        count: int | None = None,
        rate: float | None = None,
        is_dry_run: bool = False,
        target: str | None = None,
        by: str | None = None,
    ) -> RedriveView:
        """Start moving dead letters, as if they were enqueued. ``redrive_view`` shows the progress.

        Args:
            dlq: the dead-letter queue.
            wanted: which dead letters to move.
            count: the most messages to move.
            rate: messages per second, at most.
            is_dry_run: only count them.
            target: the queue to move them to; each to the queue it came from by default.
            by: the caller, recorded in the journal.

        Raises:
            QueueNotFound, NotADlq, InvalidArgument: it was not started.
        """
        request = dead_letters.Redrive(
            queue=dlq, wanted=wanted, count=count, rate=rate, is_dry_run=is_dry_run, target=target
        )
        return self.call(request, by=by)

    def redrive_view(self, redrive_id: str) -> RedriveView:
        """Return the progress of a redrive.

        Raises:
            RedriveNotFound: it does not exist.
        """
        return self.call(dead_letters.GetRedrive(id=redrive_id))

    def redrives(self) -> list[RedriveView]:
        """Return the running and the recently ended redrives, the latest last."""
        answer = self.call(dead_letters.ListRedrives())
        return answer.redrives

    def stop_redrive(self, redrive_id: str) -> RedriveView:
        """Stop a redrive. Messages that it has moved stay moved.

        Raises:
            RedriveNotFound: it does not exist.
        """
        return self.call(dead_letters.StopRedrive(id=redrive_id))

    # --------------------------------------------------------------------------------------------------------- journal

    def read_journal(
        self,
        after: int = 0,
        *,
        count: int = 1_000,
        queue: str | None = None,
        on_trimmed: journal.OnTrimmed = "fail",
    ) -> journal.Events:
        """Return about ``count`` events of the journal after a position, and the position that they reach.

        In a cluster each group has its own journal; there ``queue`` names a queue of the group, here and below. The
        position grows even where there are no events. With ``on_trimmed="skip"`` a position that has been trimmed
        counts as the beginning of the journal.

        Raises:
            JournalTrimmed: the journal begins later.
            InvalidArgument: the position does not exist.
        """
        return self.call(journal.ReadJournal(after=after, count=count, queue=queue, on_trimmed=on_trimmed))

    def set_reader(self, name: str, position: int, *, queue: str | None = None) -> None:
        """Register a reader of the journal, or advance it. The journal after its position is kept.

        Raises:
            InvalidArgument: the name or the position is not valid.
        """
        self.call(journal.SetReader(name=name, position=position, queue=queue))

    def remove_reader(self, name: str, *, queue: str | None = None) -> None:
        """Delete a reader of the journal, so that nothing is kept for it.

        Raises:
            ReaderNotFound: it does not exist.
        """
        self.call(journal.RemoveReader(name=name, queue=queue))

    def readers(self, *, queue: str | None = None) -> list[ReaderView]:
        """Return the registered readers of the journal, and how far behind they are."""
        answer = self.call(journal.ListReaders(queue=queue))
        return answer.readers

    def read_store(self, after: int = 0, *, bodies: Sequence[int] = (), queue: str | None = None) -> StoreSlice:
        """Return pages of the store after a sequence, or bodies by number; ``fairlane.backup`` reads all of it."""
        return self.call(read_request(after, bodies, queue))

    # -------------------------------------------------------------------------------------------------------- API keys

    def create_key(self, name: str, grants: Sequence[keys.Grant], *, expires_ms: int | None = None) -> keys.CreatedKey:
        """Create an API key. Its secret is returned only this once.

        Raises:
            InvalidArgument: it was not created.
        """
        return self.call(keys.CreateKey(name=name, grants=tuple(grants), expires_ms=expires_ms))

    def list_keys(self) -> list[keys.KeyShown]:
        """Return all API keys, without their secrets."""
        answer = self.call(keys.ListKeys())
        return answer.keys

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key.

        Raises:
            RouteNotFound: it does not exist.
        """
        self.call(keys.RevokeKey(id=key_id))

    # --------------------------------------------------------------------------------------------------------- cluster

    def cluster(self) -> ClusterView:
        """Return the nodes and groups of the cluster, as the node that answers sees them.

        Raises:
            InvalidArgument: the server is not a node of a cluster.
        """
        return self.call(cluster.GetCluster())

    def move_queue(self, queue: str, node: str) -> None:
        """Move the group of a queue to a node, and keep it there while the node is alive. Leases move with it."""
        self.call(cluster.MoveQueue(queue=queue, node=node))

    def split_queue(self, queue: str, partitions: int) -> Split:
        """Split a queue into partitions, which different nodes can own, and return how it is split now.

        Producers and consumers keep using its name. With fewer partitions than before, the surplus ones take no new
        messages; a second call, once they are empty, deletes them. Repeat the same call after an interruption.
        """
        return self.call(cluster.SplitQueue(queue=queue, partitions=partitions))

    def drain_node(self, node: str, *, is_draining: bool = True) -> None:
        """Move all groups of a node to other nodes, so that it can be stopped; or let it own groups again."""
        self.call(cluster.DrainNode(node=node, is_draining=is_draining))
