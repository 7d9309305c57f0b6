"""The deterministic simulation of several nodes: real engines and real decisions, over links and clocks that fail.

A seed determines everything: whose step is next, which node pauses and for how long, which one dies, whose link is cut,
deaf or slow, whose session at the board ends although it lives, and how far clocks are apart. An auditor per group
reads durable commits and checks every answer: no acknowledged message is lost, each lease is granted once, tokens only
grow, and every node refuses a stale lease. No node answers from memory after another has taken over. At the end the
simulation repairs everything; then every group must have an owner and all queues must drain.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, cast

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.cluster.budgets import NOTHING, share_in, totals
from fairlane.cluster.entries import CONFIG, GROUP, ConfigEntry, encode, view_of
from fairlane.cluster.placement import group_for
from fairlane.ports.store import Commit
from fairlane.testing.clock import FakeClock
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import Violation, violated
from tests.kit.cluster.clients import QUEUES, THROTTLE, ClusterClients
from tests.kit.cluster.links import TROUBLES, Link, LinkedBoard
from tests.kit.cluster.node import HEARTBEAT_TIMEOUT_MS, SimulatedNode
from tests.kit.cluster.store import SharedLog, SharedStore
from tests.kit.simulation.simulation import SimulationFailed
from tests.kit.simulation.store import SimulatedDisk

STEPS = 4_000
NODES = ("ann", "bob", "cid")
_GROUPS_MAX = 3
_TRACE = 80
_HEALING_MAX = 60_000
_SKEWS_MS = (-30_000, -500, 0, 0, 500, 30_000)


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """The summary of one run."""

    seed: int
    steps: int
    enqueued: int
    deliveries: int
    acked: int
    refused: int
    lost_answers: int
    openings: int
    fenced: int
    moves: int
    troubles: Counter[str]


class ClusterSimulation(ClusterClients):
    """One run under one seed.

    Attributes:
        store_type: the stores, to be replaced where a test plants a bug in them.
    """

    store_type: type[SharedStore] = SharedStore

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        super().__init__(seed)
        self.seed = seed
        self._steps = steps
        self._step = 0
        self._now_ms = 1_000_000
        self._board = MemoryBoard()
        self._logs: dict[str, SharedLog] = {}
        self._clocks = {name: FakeClock() for name in NODES}
        self._links: dict[str, Link] = {}
        self._stopped: dict[str, int] = {}
        self._trouble = self.chance.choice((0.0, 0.003, 0.006, 0.01, 0.02))
        self._trace: deque[str] = deque(maxlen=_TRACE)

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> ClusterSummary:
        """Run all steps, repair everything, and drain.

        Raises:
            SimulationFailed: a promise was broken.
        """
        logger = logging.getLogger("fairlane.broker")
        was, logger.disabled = logger.disabled, True
        try:
            self._begin()
            while self._step < self._steps:
                self._step += 1
                self._go_on()
            self._heal()
            self._drain()
        except Violation as violation:
            raise SimulationFailed(self._report(str(violation))) from violation
        except Exception as error:
            raise SimulationFailed(self._report(f"unexpected {error!r}")) from error
        finally:
            logger.disabled = was
        counts = self._counts
        return ClusterSummary(
            seed=self.seed,
            steps=self._steps,
            enqueued=counts["enqueued"],
            deliveries=counts["delivered"],
            acked=counts["acked"],
            refused=counts["refused"],
            lost_answers=counts["lost"],
            openings=sum(log.epoch for log in self._logs.values()),
            fenced=counts["fenced"],
            moves=sum(entry.moves for entry in view_of(self._board.read()).groups.values()),
            troubles=Counter({name: count for name, count in counts.items() if name.startswith("!")}),
        )

    def _report(self, what: str) -> str:
        return f"seed {self.seed}, step {self._step} of {self._steps}: {what}\nWhat led to it:\n{self.trace()}"

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._trace.append(f"[{self._step}] {text}")

    def trace(self) -> str:
        """Return the last lines of the trace."""
        return "\n".join(self._trace)

    def _begin(self) -> None:
        for name, clock in self._clocks.items():
            clock.jump(self.chance.choice(_SKEWS_MS))
            self._start(name)
        for queue in QUEUES:
            view = view_of(self._board.read())
            group, entry = group_for(queue, view.groups, groups_max=_GROUPS_MAX)
            self._board.put(GROUP + group, encode(entry), version=view.versions.get(GROUP + group))
            self._group_of[queue] = group
        for key, value in ((f"throttle:{THROTTLE}:rate", "50"), (f"throttle:{THROTTLE}:burst", "20")):
            self._board.put(CONFIG + key, encode(ConfigEntry(value)), version=None)
        for group in set(self._group_of.values()):
            self._make_log(group)

    def _make_log(self, group: str) -> None:
        log = self._logs[group] = SharedLog(lambda: self._now_ms)
        # What an auditor needs of a disk, a log has too.
        auditor = self.auditors[group] = Auditor(cast("SimulatedDisk", log), self._earliest_ms)
        enter = auditor.journal.enter

        def enter_and_check(commit: Commit) -> None:
            enter(commit)
            self._check_shares()

        log.on_durable = enter_and_check

    def _latest_ms(self) -> int:
        return max(self._times_ms())

    def _earliest_ms(self) -> int:
        return min(self._times_ms())

    def _times_ms(self) -> list[int]:
        """Return the times of all wall clocks and of all brokers that run."""
        nodes = [node for node in self._nodes.values() if node is not None]
        times_ms = [group.engine.now_ms() for node in nodes for group in node.groups.values()]
        return times_ms + [clock.now_ms() for clock in self._clocks.values()]

    def _start(self, name: str) -> None:
        self._counts["started"] += 1
        link = self._links[name] = Link(self.chance)
        self._nodes[name] = SimulatedNode(
            name,
            incarnation=self._counts["started"],
            board=LinkedBoard(self._board.another(), link, monotonic_ms=lambda: self._now_ms),
            link=link,
            clock=self._clocks[name],
            monotonic_ms=lambda: self._now_ms,
            log_of=self._logs.__getitem__,
            store_type=self.store_type,
        )

    # --------------------------------------------------------------------------------------------------------- stepping

    def _go_on(self) -> None:
        """Run one step: time passes, a node steps, a client calls, or trouble strikes."""
        chance = self.chance
        if self._happens(0.4):
            self._pass_time(chance.choice((1, 5, 20, 60)))
        self._let_somebody_step()
        if self._happens(0.3):
            self._ask_something()
        if self._happens(self._trouble):
            self._make_trouble()
        for link in self._links.values():
            if link.late and self._happens(0.01):
                link.arrive()

    def _pass_time(self, ms: int) -> None:
        self._now_ms += ms
        for clock in self._clocks.values():
            clock.advance(ms)
        for name in [name for name, until_ms in self._stopped.items() if until_ms <= self._now_ms]:
            self.note(f"{name} goes on")
            del self._stopped[name]

    def _let_somebody_step(self) -> None:
        awake = [node for name, node in self._nodes.items() if node is not None and name not in self._stopped]
        for node in awake:
            steps = node.steps()
            if self._happens(0.7):
                self._advance(node, self.chance.choice(steps))

    def _advance(self, node: SimulatedNode, steps: Any) -> None:
        for group in node.groups.values():
            if steps in group.steps and group.engine.is_fenced and not group.is_closing:
                self._counts["fenced"] += 1
                group.is_closing = True
        try:
            next(steps)
        except StopIteration:
            return

    # ---------------------------------------------------------------------------------------------------------- trouble

    def _make_trouble(self) -> None:
        name = self.chance.choice(NODES)
        what = self.chance.choice(
            (self._stop, self._cut, self._kill, self._hang_up, self._jump, self._mend, self._mend, self._want)
        )
        what(name)

    def _stop(self, name: str) -> None:
        pause_ms = self.chance.choice(
            (
                100,
                HEARTBEAT_TIMEOUT_MS // 2,
                HEARTBEAT_TIMEOUT_MS + 500,
                3 * HEARTBEAT_TIMEOUT_MS,
                3 * HEARTBEAT_TIMEOUT_MS,
            )
        )
        self.note(f"{name} is stopped for {pause_ms} ms")
        self._counts["!stop"] += 1
        self._stopped[name] = self._now_ms + pause_ms

    def _doze(self, name: str) -> None:
        """Stop a node for less than its timeout, so that only its lost session can tell it to ask its stores."""
        self._stopped[name] = self._now_ms + HEARTBEAT_TIMEOUT_MS * 3 // 4

    def _cut(self, name: str) -> None:
        self._links[name].trouble = self.chance.choice(TROUBLES)
        self._counts[f"!{self._links[name].trouble}"] += 1
        self.note(f"the link of {name} is {self._links[name].trouble}")

    def _kill(self, name: str) -> None:
        node = self._nodes[name]
        self._stopped.pop(name, None)
        if node is None:
            self.note(f"{name} is started")
            self._start(name)
            return
        self.note(f"{name} dies")
        self._counts["!kill"] += 1
        self._nodes[name] = None
        node.board.hang_up()

    def _hang_up(self, name: str) -> None:
        """End the session of a node that lives, and that may not notice for a while."""
        node = self._nodes[name]
        if node is not None:
            self.note(f"{name} loses its session")
            self._counts["!session"] += 1
            node.board.hang_up()
            self.chance.choice((self._doze, self._cut, self._want))(name)

    def _jump(self, name: str) -> None:
        jump_ms = self.chance.choice((-60_000, -1_000, 1_000, 60_000))
        self.note(f"the clock of {name} jumps by {jump_ms} ms")
        self._counts["!jump"] += 1
        self._clocks[name].jump(jump_ms)

    def _mend(self, name: str) -> None:
        self._links[name].trouble = None
        if self._nodes[name] is None:
            self._start(name)

    def _want(self, name: str) -> None:
        """Change the demand for the throttle."""
        node = self._nodes[name]
        if node is not None:
            groups = sorted(node.groups)
            node.demand = {THROTTLE: {group: self.chance.choice((0, 1, 50)) for group in groups}}

    def _check_shares(self) -> None:
        """Check that the shares of all groups add up to no more than the throttle."""
        total = totals(view_of(self._board.read()).config)[THROTTLE]
        used = [share_in(auditor.books.config, THROTTLE) or NOTHING for auditor in self.auditors.values()]
        if sum(share.rate for share in used) > total.rate or sum(share.burst for share in used) > total.burst:
            violated(f"groups may use {used} of {total}")

    # ---------------------------------------------------------------------------------------------------------- the end

    def _heal(self) -> None:
        """Start every node and repair every link."""
        self.note("all is healed")
        self._trouble = 0.0
        self._stopped.clear()
        for name, link in self._links.items():
            link.trouble = None
            while link.late:
                link.arrive()
            if self._nodes[name] is None:
                self._start(name)
            self._want(name)

    def _drain(self) -> None:
        """Lease and acknowledge everything until the queues are empty and every group is with its owner."""
        for _ in range(_HEALING_MAX):
            self._step += 1
            if self._is_done():
                break
            self._pass_time(self.chance.choice((5, 20)))
            self._let_somebody_step()
            queue = self.chance.choice(QUEUES)
            if (place := self._serving(queue)) is not None and queue in self.auditors[place[1].name].books.queues:
                self.chance.choice((self._lease, self._ack))(queue, place[1])
        else:
            left = {group: [entry.number for entry in one.books.alive()] for group, one in self.auditors.items()}
            violated(f"not drained: {left}, homes {view_of(self._board.read()).groups}")
        for auditor in self.auditors.values():
            auditor.check_counts()
            auditor.check_fold(self._latest_ms())

    def _is_done(self) -> bool:
        if any(any(True for _ in auditor.books.alive()) for auditor in self.auditors.values()):
            return False
        groups = view_of(self._board.read()).groups
        return all(
            (node := self._nodes.get(entry.home or "")) is not None
            and name in node.groups
            and sum(name in other.groups for other in self._nodes.values() if other is not None) == 1
            for name, entry in groups.items()
        )
