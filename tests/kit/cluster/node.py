"""A simulated node: the real engine for each open group, and the real decisions about where groups live.

Everything that a node does is cut into steps: reading the board and acting on it, deciding a cycle and committing it,
committing it and answering. Between two steps the node may pause for long, die, or be overtaken by others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlane.adapters.shared.ownership import OwnerProcess, Ownership
from fairlane.broker.engine.engine import Engine
from fairlane.broker.requests import Call, Read, Submission
from fairlane.cluster.budgets import OPENING_KEY, config_of, owner_step, share_in, steward_step, totals, turn_at
from fairlane.cluster.entries import BUDGET, GROUP, NODE, BoardView, NodeEntry, encode, view_of
from fairlane.cluster.heartbeat import Liveness
from fairlane.cluster.placement import Move, balancing, homeless, steward
from fairlane.errors import FairlaneError, QueueMoving, StoreFailed, StoreLocked
from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.testing.stepped import Pending
from fairlane.verbs.config import SetConfig
from tests.kit.cluster.links import Link, LinkedBoard
from tests.kit.cluster.store import SharedLog, SharedStore
from tests.kit.simulation.hooks import SimulatedHooks

HEARTBEAT_TIMEOUT_MS = 2_000
_BALANCE_MS = 3_000
Steps = Generator[None, None, None]


@dataclass(slots=True, eq=False)
class OpenGroup:
    """A group that a node has open, with the steps that serve it."""

    name: str
    store: SharedStore
    engine: Engine
    opening: int = 0
    is_serving: bool = False
    is_closing: bool = False
    steps: list[Steps] = field(default_factory=list)


class SimulatedNode:
    """One process of a node; another takes its place when it has died."""

    def __init__(
        self,
        name: str,
        *,
        incarnation: int,
        board: LinkedBoard,
        link: Link,
        clock: FakeClock,
        monotonic_ms: Callable[[], int],
        log_of: Callable[[str], SharedLog],
        store_type: type[SharedStore] = SharedStore,
    ) -> None:
        self.name = name
        self.incarnation = self._first_name = f"{name}-{incarnation}"
        self.board = board
        self.link = link
        self.clock = clock
        self.is_draining = False
        self.groups: dict[str, OpenGroup] = {}
        self.demand: dict[str, dict[str, int]] = {}
        self._entropy = SeededEntropy(incarnation)
        self._monotonic_ms = monotonic_ms
        self._log_of = log_of
        self._store_type = store_type
        self._watch = Liveness(HEARTBEAT_TIMEOUT_MS)
        self._beat = 0
        self._openings = 0
        self._balanced_ms = monotonic_ms()
        self._names = 0
        self.board.attend(self.incarnation, self._go_on_as_another)
        self._life = self._live()
        self._looks = self._look()

    def steps(self) -> list[Steps]:
        """Return the tasks of this process, of which the simulation chooses the next one to step."""
        return [self._life, self._looks, *(steps for group in self.groups.values() for steps in group.steps)]

    # ------------------------------------------------------------------------------------------------------- the node

    def _live(self) -> Steps:
        while True:
            try:
                yield from self._beat_once()
            except StoreFailed:
                yield

    def _look(self) -> Steps:
        """Look who is connected to the board."""
        while True:
            with suppress(StoreFailed):
                self.board.look()
            yield

    def _go_on_as_another(self) -> None:
        """Take a new name, and open all groups again, since others may know that the old one has ended."""
        self._names += 1
        self.incarnation = f"{self._first_name}-{self._names}"
        self.board.attend(self.incarnation, self._go_on_as_another)
        for group in self.groups.values():
            group.is_closing = True

    def is_in_doubt(self, incarnation: str) -> bool:
        """Return whether others may know that an incarnation has ended."""
        return incarnation != self.incarnation or not self.board.is_attending()

    def _beat_once(self) -> Steps:
        view = view_of(self.board.read())
        yield
        self._show_life(view)
        yield
        now_ms = self._monotonic_ms()
        ended = self.board.ended([entry.incarnation for entry in view.nodes.values()])
        view = view_of(self.board.read())
        self._watch.note(view.nodes, now_ms, ended=ended)
        live = self._watch.live(now_ms) | {self.name}
        yield
        for move in self._moves(view, live):
            self.board.put(GROUP + move.group, encode(move.entry), version=view.versions[GROUP + move.group])
            yield
        yield from self._follow_board(view)
        if steward(view.nodes, live) == self.name:
            yield from self._split(view, live)

    def _show_life(self, view: BoardView) -> None:
        self._beat += 1
        entry = NodeEntry(
            address=self.name,
            beat=self._beat,
            incarnation=self.incarnation,
            is_draining=self.is_draining,
            load=dict.fromkeys(self.groups, 1.0),
            demand=self.demand,
        )
        self.board.put(NODE + self.name, encode(entry), version=view.versions.get(NODE + self.name))

    def _moves(self, view: BoardView, live: frozenset[str]) -> list[Move]:
        moves = homeless(view.groups, view.nodes, live, self._watch.ended)
        is_due = self._monotonic_ms() - self._balanced_ms >= _BALANCE_MS
        if moves or not is_due or steward(view.nodes, live) != self.name:
            return moves
        self._balanced_ms = self._monotonic_ms()
        move = balancing(view.groups, view.nodes, live)
        return [] if move is None else [move]

    def _follow_board(self, view: BoardView) -> Steps:
        """Open the groups that belong to this node, and close the others."""
        for name, entry in view.groups.items():
            group = self.groups.get(name)
            if group is not None and group.engine.is_fenced:
                del self.groups[name]
            elif entry.home == self.name and group is None:
                self._open(name, left_by=entry.left_by)
            elif entry.home != self.name and group is not None:
                group.is_closing = True
            yield

    def _open(self, name: str, *, left_by: str) -> None:
        self._openings += 1
        doubt = partial(self.is_in_doubt, self.incarnation)
        process = OwnerProcess(name=self.incarnation, is_in_doubt=doubt, ended=self._watch.ended | {left_by})
        timeout_ms = HEARTBEAT_TIMEOUT_MS
        ownership = Ownership(owner=self.name, heartbeat_timeout_ms=timeout_ms, sends_heartbeats=False, process=process)
        store = self._store_type(
            self._log_of(name),
            self.link,
            ownership=ownership,
            name=f"{self.incarnation}.{self._openings}",
            monotonic=lambda: self._monotonic_ms() / 1_000,
        )
        engine = Engine(store, hooks=SimulatedHooks(), clock=self.clock, entropy=self._entropy, carry_floor=50)
        try:
            engine.open()
        except (StoreLocked, StoreFailed):
            return
        group = self.groups[name] = OpenGroup(name, store, engine)
        group.steps = [self._serve(group), self._share(group), self._keep(group)]

    # ------------------------------------------------------------------------------------------------------ the groups

    def _serve(self, group: OpenGroup) -> Steps:
        """Run turns, each in three steps."""
        engine = group.engine
        while not group.is_closing and not engine.is_fenced:
            turn = engine.begin()
            yield
            try:
                if turn.records:
                    engine.write(turn)
                    engine.sync()
            except FairlaneError as error:
                engine.fail(turn, error)
                yield
                continue
            yield
            engine.finish(turn)
            yield
        self._let_go(group)

    @staticmethod
    def _keep(group: OpenGroup) -> Steps:
        """Renew ownership while there are no commits, as a thread does for real stores."""
        while True:
            with suppress(FairlaneError):
                group.store.keep()
            yield

    def _let_go(self, group: OpenGroup) -> None:
        if self.groups.get(group.name) is group:
            del self.groups[group.name]
        group.engine.send_away(QueueMoving("The queue goes to another node."))
        try:
            group.engine.close()
        except FairlaneError:
            return  # its store is lost, or another's

    def _share(self, group: OpenGroup) -> Steps:
        """Number the opening, and then follow the budgets."""
        while group.opening == 0:
            config = yield from self._config(group)
            opening = int((config or {}).get(OPENING_KEY, "0")) + 1
            if config is not None and (yield from self._set(group, {OPENING_KEY: str(opening)})):
                group.opening = opening
        while True:
            try:
                view = view_of(self.board.read())
            except StoreFailed:
                yield
                continue
            yield
            is_settled = True
            for throttle in totals(view.config):
                is_settled &= yield from self._follow(group, view, throttle)
            group.is_serving |= is_settled
            yield

    def _asked(
        self, group: OpenGroup, make: Callable[[Pending[Any]], Submission]
    ) -> Generator[None, None, Pending[Any]]:
        pending: Pending[Any] = Pending()
        group.engine.submit(make(pending))
        while not pending.done():
            yield
        return pending

    def _config(self, group: OpenGroup) -> Generator[None, None, dict[str, str] | None]:
        """Return the durable config of a group; None if it is unknown."""
        engine = group.engine
        pending = yield from self._asked(group, lambda reply: Read(lambda: dict(engine.ledger.config), reply))
        try:
            config: dict[str, str] = pending.get()
        except FairlaneError:
            return None
        return config

    def _set(self, group: OpenGroup, values: dict[str, str]) -> Generator[None, None, bool]:
        """Set config values of a group; return whether they are durable."""
        command = SetConfig(values=dict(values))
        pending = yield from self._asked(group, lambda reply: Call(command, reply))
        try:
            return not isinstance(pending.get(), FairlaneError)
        except FairlaneError:
            return False

    def _follow(self, group: OpenGroup, view: BoardView, throttle: str) -> Generator[None, None, bool]:
        """Take the owner's steps for a throttle; return whether the engine has no share to lower."""
        while True:
            if (config := (yield from self._config(group))) is None:
                return False
            applied = share_in(config, throttle)
            step = owner_step(view.budgets.get(throttle), group.name, opening=group.opening, applied=applied)
            if step.apply is None:
                break
            if not (yield from self._set(group, config_of(throttle, step.apply))):
                return False
        if step.put is not None:
            yield
            try:
                self.board.put(BUDGET + throttle, encode(step.put), version=view.versions[BUDGET + throttle])
            except StoreFailed:
                return True
        return True

    def _split(self, view: BoardView, live: frozenset[str]) -> Steps:
        """Do what the steward does about throttles."""
        open_groups = {group for name, entry in view.nodes.items() if name in live for group in entry.load}
        for throttle, total in totals(view.config).items():
            demand: dict[str, int] = {}
            for entry in view.nodes.values():
                demand |= entry.demand.get(throttle, {})
            fresh = steward_step(
                view.budgets.get(throttle),
                total,
                groups=view.groups.keys(),
                demand=demand,
                open_groups=open_groups,
                turn=turn_at(total, self._monotonic_ms() / 1_000),
            )
            if fresh is not None:
                self.board.put(BUDGET + throttle, encode(fresh), version=view.versions.get(BUDGET + throttle))
            yield
