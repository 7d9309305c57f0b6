"""The house: where the brokers of queues are found that this process serves.

A server alone has one broker for everything, and pays nothing for the house. A node of a cluster has a broker for each
group that it owns, all on its one event loop, and knows which other node has the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from fairlane.broker.engine.engine import Tap
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.measurements import BrokerMetrics, EngineMetrics, Waited, together
from fairlane.errors import Closed, QueueElsewhere, QueueMoving, QueueNotFound, QueueSplit, StoreFenced
from fairlane.gateway.protocol import HandOutTap
from fairlane.model.message import Delivery, Key, Receipt
from fairlane.model.names import DLQ_SUFFIX, dlq_of, is_dlq
from fairlane.model.partitions import MARK, Split, partition_name, queue_of, served_name
from fairlane.model.views import QueueView

RETRY_AFTER_MS: Final = 250
_LOOK_S: Final = 60.0
_WHOLE: Final = Split(partitions=1, made=1)


class Config(Protocol):
    """Where the config of a cluster is kept."""

    def check(self) -> None:
        """Refuse to answer while nobody else knows that this node lives.

        Raises:
            StoreFailed: the board is out of reach.
        """

    async def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return config values by the beginning of their keys."""

    async def set_config_many(self, values: Mapping[str, str | None], *, by: str | None = None) -> None:
        """Set config values for all groups."""


@dataclass(frozen=True, slots=True)
class GroupLocation:
    """Where the queues of a group are: the node that owns it, or shall, and its address if it lives."""

    group: str
    node: str | None
    address: str | None


class Groups:
    """The brokers of the groups that are open in this process, and where all others are."""

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
        """Who keeps the config; set when the node has joined."""

    # -------------------------------------------------------------------------------------------------- by queue

    @property
    def splits(self) -> Mapping[str, Split]:
        """How queues are split, of those that are."""
        return self._splits

    def has(self, queue: str) -> bool:
        """Tell whether a queue, or the partition that is named, is served here."""
        return served_name(queue) in self._here

    def served_as(self, queue: str) -> str | None:
        """Return the name under which a broker here serves what is asked for; None if it takes more than that broker.

        The plain name of a queue that is split means all of its partitions, wherever these are.
        """
        if MARK in queue:
            queue = served_name(queue)
        elif self._splits and self.split_of(queue) is not None:
            return None
        return queue if queue in self._here else None

    def split_of(self, queue: str) -> Split | None:
        """Return how a queue is split, or the queue whose dead letters it holds; None for one that is whole."""
        return self._splits.get(queue) or self._splits.get(queue.removesuffix(DLQ_SUFFIX))

    def of(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue; of one that is split, its first partition.

        Raises:
            QueueElsewhere: another node does.
            QueueMoving: no node does for the moment.
            QueueNotFound: as far as is known here, there is no such queue.
        """
        broker = self._here.get(served_name(queue))
        if broker is not None:
            return broker
        place = self.location_of(queue)
        if place is None:
            raise QueueNotFound(f"There is no queue {served_name(queue)!r:.150}.")
        if place.node is None or place.node == self.node or place.address is None:
            raise moving(queue)
        raise QueueElsewhere(f"Queue {queue!r:.150} is served by node {place.node!r}.", at=place.address)

    def location_of(self, queue: str) -> GroupLocation | None:
        """Return where a queue is, or the queue that a dead-letter queue belongs to; None if nobody has heard of it."""
        queue = served_name(queue)
        return self._locations.get(queue) or self._locations.get(queue.removesuffix(DLQ_SUFFIX))

    @property
    def locations(self) -> Mapping[str, GroupLocation]:
        """Where each queue is."""
        return self._locations

    async def changed(self, timeout_s: float) -> None:
        """Wait until something is served here that was not, or belongs elsewhere, but not for longer than this."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def gone(self, queue: str) -> None:
        """Return when a queue is not served here any more, or is split otherwise."""
        whole = queue_of(queue)
        split = self.split_of(whole)
        while self.has(queue) and self.split_of(whole) == split:
            await self.changed(_LOOK_S)

    # ------------------------------------------------------------------------------------------------- coming and going

    @property
    def names(self) -> Collection[str]:
        """The groups that are open here."""
        return self._open.keys()

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
        """Serve a group no more, and return its broker: from now on nobody is sent to it."""
        broker = self._open.pop(group, None)
        if broker is not None:
            self._left.add(broker.measured().engine)  # what has been counted is never counted down
        self._map()
        return broker

    def locate(self, locations: Mapping[str, GroupLocation], splits: Mapping[str, Split] | None = None) -> None:
        """Take note of where queues are, and how some are split."""
        before, now = self._splits, dict(splits or {})
        if locations != self._locations or now != before:
            self._locations, self._splits = dict(locations), now
            self._map()
        for queue in before.keys() | now.keys():
            if before.get(queue) != now.get(queue):
                self._send_away(queue, before.get(queue, _WHOLE), now.get(queue, _WHOLE))

    def _send_away(self, queue: str, before: Split, now: Split) -> None:
        """Let those who wait at partitions of a queue ask again, since it is split otherwise from now on."""
        for whole in (queue, dlq_of(queue)):
            error = split_into(whole, now)
            for at in range(max(before.made, now.made)):
                served = served_name(partition_name(whole, at))
                if served in self._here:
                    self._here[served].send_away(served, error)

    def _map(self) -> None:
        here: dict[str, AsyncBroker] = {}
        for queue, place in self._locations.items():
            broker = self._open.get(place.group)
            if broker is not None:
                here[queue] = here[dlq_of(queue)] = broker
        self._here = here
        self._changed.set()

    # ------------------------------------------------------------------------------------------ looking at all of them

    def now_ms(self) -> int:
        """Return the time."""
        return self._clock_ms()

    async def queues(self) -> list[QueueView]:
        """Return all queues that are served here, by name."""
        found: list[QueueView] = []
        for broker in self.brokers():
            with suppress(Closed, StoreFenced):  # it has gone to another node meanwhile
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
        """Let a function see what a queue hands out, as long as it is served here."""
        return self.of(queue).watch_hand_outs(served_name(queue), tell)

    def waited(self, queue: str, number: int) -> Waited | None:
        """Return since when a message could go that was just handed out here."""
        broker = self._here.get(queue)
        return None if broker is None else broker.waited(queue, number)

    def measured(self) -> BrokerMetrics:
        """Return what all groups have measured that are open here, or were."""
        return together([broker.measured() for broker in self.brokers()], before=self._left)

    def terms_of(self, queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
        """Return fairness keys and costs of messages that are here now."""
        broker = self._here.get(queue)
        return ([], []) if broker is None else broker.terms_of(queue, numbers)

    def weight_of(self, queue: str, key: Key) -> int:
        """Return the weight of a fairness key; 1 if the queue is gone."""
        broker = self._here.get(queue)
        return 1 if broker is None else broker.weight_of(queue, key)

    def give_back(self, queue: str, deliveries: Sequence[Delivery | Receipt]) -> None:
        """Let messages go back; those of a queue that is elsewhere by now go back when their leases end."""
        served = served_name(queue)
        broker = self._here.get(served)
        if broker is not None:
            broker.give_back(served, deliveries)

    def add_tap(self, tap: Tap) -> None:
        """Let a function see every record of every group that is open here, now or later."""
        self._taps.append(tap)
        for broker in self.brokers():
            broker.add_tap(tap)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back when all answers of the turn are given whose answers are being given, or else soon."""
        for broker in self._open.values():
            if broker.is_answering:
                broker.call_after_answers(callback)
                return
        self._loop.call_soon(callback)

    # ---------------------------------------------------------------------------------------------------------- config

    async def get_config(self, key: str) -> str | None:
        """Return a config value of the cluster, if the node is part of it.

        Raises:
            QueueMoving: the node has not joined yet.
            StoreFailed: it is cut off from the others.
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
    """Return the error of a queue that no node serves for the moment."""
    return QueueMoving(f"Queue {queue!r:.150} is on its way to another node.", retry_after_ms=RETRY_AFTER_MS)


def split_into(queue: str, split: Split) -> QueueSplit:
    """Return the error of a queue that is split, for whoever has to ask its partitions."""
    return QueueSplit(
        f"Queue {queue!r:.150} is split into {split.made} partitions.",
        partitions=split.partitions,
        made=split.made,
        by_message=split.by_message or is_dlq(queue),  # what a script or policy says is said of new messages only
    )
