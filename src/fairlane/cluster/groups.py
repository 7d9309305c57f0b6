"""The groups of queues that are open at this node, and where all other queues are.

A node has one broker for each group that it owns, all on its one event loop. By the name of a queue it finds that
broker, or the node that has the queue. To observers all brokers together look like one (``Observed``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from fairlane.broker.engine.engine import Tap
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.measurements import BrokerMetrics, EngineMetrics, Waited, together
from fairlane.errors import Closed, QueueElsewhere, QueueMoving, QueueNotFound, QueueSplit, StoreFenced
from fairlane.gateway.protocol import HandOutTap
from fairlane.model.message import Key
from fairlane.model.names import DLQ_SUFFIX, dlq_of, is_dlq
from fairlane.model.partitions import MARK, Split, partition_name, queue_of, served_name
from fairlane.model.views import BreakerCause, QueueView

RETRY_AFTER_MS: Final = 250
_POLL_S: Final = 60.0
_WHOLE: Final = Split(partitions=1, made=1)


class Config(Protocol):
    """The config of a cluster."""

    def check(self) -> None:
        """Refuse to answer while no other node can know that this node lives."""

    async def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose keys start with a prefix."""

    async def set_config_many(self, values: Mapping[str, str | None], *, by: str | None = None) -> None:
        """Set config values for all groups."""


@dataclass(frozen=True, slots=True)
class GroupLocation:
    """Where the queues of a group are: the node that should own it, and its address if that node lives."""

    group: str
    node: str | None
    address: str | None


class Groups:
    """The brokers of the groups that are open here, and the locations of all queues."""

    def __init__(self, *, node: str, clock_ms: Callable[[], int]) -> None:
        self.node = node
        """The name of this node."""
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, AsyncBroker] = {}
        self._here: dict[str, AsyncBroker] = {}
        self._locations: dict[str, GroupLocation] = {}
        self._splits: dict[str, Split] = {}
        self._taps: list[Tap] = []
        self._changed = asyncio.Event()
        self._left = EngineMetrics()
        self.config: Config | None = None
        """The config of the cluster; set when the node has joined."""

    # -------------------------------------------------------------------------------------------------- by queue

    @property
    def splits(self) -> Mapping[str, Split]:
        """How queues are split, for those that are."""
        return self._splits

    def has(self, queue: str) -> bool:
        """Return whether a queue, or the partition with this name, is served here."""
        return served_name(queue) in self._here

    def served_as(self, queue: str) -> str | None:
        """Return the name under which one broker here serves what a caller names; None if one broker is not enough.

        The plain name of a split queue means all of its partitions, wherever they are.
        """
        if MARK in queue:
            queue = served_name(queue)
        elif self._splits and self.split_of(queue) is not None:
            return None
        return queue if queue in self._here else None

    def split_of(self, queue: str) -> Split | None:
        """Return how a queue is split, or for a dead-letter queue the queue it belongs to; None if it is whole."""
        return self._splits.get(queue) or self._splits.get(queue.removesuffix(DLQ_SUFFIX))

    def of(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue, or the first partition of a split queue.

        Raises:
            QueueElsewhere: another node serves it.
            QueueMoving: no node serves it at the moment.
            QueueNotFound: the board, as it was read last, does not have the queue.
        """
        broker = self._here.get(served_name(queue))
        if broker is not None:
            return broker
        location = self.location_of(queue)
        if location is None:
            raise QueueNotFound(f"Queue {served_name(queue)!r:.150} does not exist.")
        if location.node is None or location.node == self.node or location.address is None:
            raise moving(queue)
        raise QueueElsewhere(f"Queue {queue!r:.150} is served by node {location.node!r}.", at=location.address)

    def location_of(self, queue: str) -> GroupLocation | None:
        """Return where a queue is, or for a dead-letter queue where its queue is; None if it is not on the board."""
        queue = served_name(queue)
        return self._locations.get(queue) or self._locations.get(queue.removesuffix(DLQ_SUFFIX))

    @property
    def locations(self) -> Mapping[str, GroupLocation]:
        """The location of each queue."""
        return self._locations

    async def changed(self, timeout_s: float) -> None:
        """Wait until a group is opened, closed or located elsewhere, or until the timeout."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def gone(self, queue: str) -> None:
        """Return when a queue is no longer served here, or is split differently."""
        whole = queue_of(queue)
        split = self.split_of(whole)
        while self.has(queue) and self.split_of(whole) == split:
            await self.changed(_POLL_S)

    # ------------------------------------------------------------------------------------------------- coming and going

    @property
    def names(self) -> Collection[str]:
        """The groups that are open here."""
        return self._open.keys()

    def opened(self) -> list[tuple[str, AsyncBroker]]:
        """Return the groups that are open here now, each with its broker."""
        return list(self._open.items())

    def group(self, name: str) -> AsyncBroker | None:
        """Return the broker of a group that is open here."""
        return self._open.get(name)

    def brokers(self) -> list[AsyncBroker]:
        """Return all brokers that are open here."""
        return list(self._open.values())

    def add(self, group: str, broker: AsyncBroker) -> None:
        """Serve a group."""
        for tap in self._taps:
            broker.add_tap(tap)
        self._open[group] = broker
        self._map()

    def take_out(self, group: str) -> AsyncBroker | None:
        """Stop serving a group, and return its broker. From now on no caller is sent to it."""
        broker = self._open.pop(group, None)
        if broker is not None:
            self._left.add(broker.measured().engine)  # counters never go down
        self._map()
        return broker

    def locate(self, locations: Mapping[str, GroupLocation], splits: Mapping[str, Split] | None = None) -> None:
        """Set where queues are, and how some are split."""
        before, now = self._splits, dict(splits or {})
        if locations != self._locations or now != before:
            self._locations, self._splits = dict(locations), now
            self._map()
        for queue in before.keys() | now.keys():
            if before.get(queue) != now.get(queue):
                self._send_away(queue, before.get(queue, _WHOLE), now.get(queue, _WHOLE))

    def _send_away(self, queue: str, before: Split, now: Split) -> None:
        """Refuse callers that wait at partitions of a queue, so that they ask again: it is split differently now."""
        for whole in (queue, dlq_of(queue)):
            error = split_into(whole, now)
            for at in range(max(before.made, now.made)):
                served = served_name(partition_name(whole, at))
                if served in self._here:
                    self._here[served].send_away(served, error)

    def _map(self) -> None:
        here: dict[str, AsyncBroker] = {}
        for queue, location in self._locations.items():
            broker = self._open.get(location.group)
            if broker is not None:
                here[queue] = here[dlq_of(queue)] = broker
        self._here = here
        self._changed.set()

    # ------------------------------------------------------------------------------------------ for observers

    def now_ms(self) -> int:
        """Return the time."""
        return self._clock_ms()

    async def queues(self) -> list[QueueView]:
        """Return all queues that are served here, by name."""
        found: list[QueueView] = []
        for broker in self.brokers():
            with suppress(Closed, StoreFenced):  # it has moved to another node meanwhile
                found += await broker.queues()
        return sorted(found, key=lambda view: view.name)

    async def queue(self, queue: str, *, keys_max: int = 0) -> QueueView:
        """Return a queue that is served here; see ``AsyncBroker.queue``."""
        return await self.of(queue).queue(served_name(queue), keys_max=keys_max)

    async def look_at(
        self, queue: str, *, keys_max: int, wanted: Callable[[Key], bool] | None = None
    ) -> tuple[QueueView, float]:
        """Return a queue that is served here, with fairness keys; see ``AsyncBroker.look_at``."""
        return await self.of(queue).look_at(served_name(queue), keys_max=keys_max, wanted=wanted)

    def watch_hand_outs(self, queue: str, tell: HandOutTap) -> Callable[[], None]:
        """Call a function with everything that a queue hands out while it is served here."""
        return self.of(queue).watch_hand_outs(served_name(queue), tell)

    def waited(self, queue: str, number: int) -> Waited | None:
        """Return since when a message was ready that was just handed out here."""
        broker = self._here.get(queue)
        return None if broker is None else broker.waited(queue, number)

    def measured(self) -> BrokerMetrics:
        """Return the measurements of all groups that are open here, or were."""
        return together([broker.measured() for broker in self.brokers()], before=self._left)

    def terms_of(self, queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
        """Return the fairness keys and costs of messages that are here now."""
        broker = self._here.get(queue)
        return ([], []) if broker is None else broker.terms_of(queue, numbers)

    def weight_of(self, queue: str, key: Key) -> int:
        """Return the weight of a fairness key; 1 if the queue is gone."""
        broker = self._here.get(queue)
        return 1 if broker is None else broker.weight_of(queue, key)

    def bypass_of(self, queue: str) -> BreakerCause | None:
        """Return why the scripts of a queue are bypassed now; None if they are not, or the queue is gone."""
        broker = self._here.get(queue)
        return None if broker is None else broker.bypass_of(queue)

    def add_tap(self, tap: Tap) -> None:
        """Call a function with every record of every group that is open here, now or later."""
        self._taps.append(tap)
        for broker in self.brokers():
            broker.add_tap(tap)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back after all answers of the present cycle are given, or soon if no cycle is answering."""
        for broker in self._open.values():
            if broker.is_answering:
                broker.call_after_answers(callback)
                return
        self._loop.call_soon(callback)

    # ---------------------------------------------------------------------------------------------------------- config

    async def get_config(self, key: str) -> str | None:
        """Return a config value of the cluster.

        Raises QueueMoving if the node has not joined yet. Raises StoreFailed if the node can't reach the board.
        """
        self._config().check()
        return (await self._config().list_config(key)).get(key)

    async def list_private_config(self, prefix: str) -> dict[str, str]:
        """Return config values of the cluster."""
        return await self._config().list_config(prefix)

    async def set_private_config(self, key: str, value: str | None, *, by: str | None = None) -> None:
        """Set a config value for all groups."""
        await self._config().set_config_many({key: value}, by=by)

    def _config(self) -> Config:
        if self.config is None:
            raise QueueMoving("The node has not joined the cluster yet.", retry_after_ms=RETRY_AFTER_MS)
        return self.config


def moving(queue: str) -> QueueMoving:
    """Return the error for a queue that no node serves at the moment."""
    return QueueMoving(f"Queue {queue!r:.150} is moving to another node.", retry_after_ms=RETRY_AFTER_MS)


def split_into(queue: str, split: Split) -> QueueSplit:
    """Return the error for a split queue whose partitions the caller has to ask."""
    return QueueSplit(
        f"Queue {queue!r:.150} is split into {split.made} partitions.",
        partitions=split.partitions,
        made=split.made,
        by_message=split.by_message or is_dlq(queue),  # a script or policy chooses the key of new messages only
    )
