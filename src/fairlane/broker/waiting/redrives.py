"""Redrives: dead letters back to work, a few with each cycle, at a rate, with progress, until done or stopped.

The order, each move and the end of a redrive are records, so a redrive goes on after a restart, on another node if its
queue moves there, where it was: see ``core/states/redrives.py``. What is kept here is only how far the search through
the dead letters has come. After a restart it begins again with those that are left.

A dry run moves nothing, so nothing of it is recorded, and a restart ends it.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.waiting.dry_runs import DryRuns
from fairlane.broker.waiting.redrive_moves import RedriveSearch, end, take_step
from fairlane.core.commands import Given
from fairlane.core.dead_letters import dead_before
from fairlane.core.ledger import Ledger
from fairlane.core.states.redrives import RedriveState, redrive_number
from fairlane.errors import FairlaneError, RedriveNotFound
from fairlane.model.views import RedriveView
from fairlane.verbs.dead_letters import Redrive


class Redrives:
    """The redrives that run, by number, and the dry runs."""

    def __init__(self) -> None:
        self.dry_runs = DryRuns()
        self.running: dict[int, RedriveSearch] = {}

    def resume(self, ledger: Ledger, now_ms: int) -> None:
        """Go on with the redrives of a ledger that was recovered."""
        self.running = {}
        for state in ledger.redrives.values():
            if state.end is None:
                self._begin(ledger, state, now_ms)

    def _begin(self, ledger: Ledger, state: RedriveState, now_ms: int) -> None:
        order = state.order
        numbers = dead_before(order.wanted, ledger.queues[order.queue], state.number)
        self.running[state.number] = RedriveSearch(state, numbers, now_ms, now_ms, state.moved, matched=state.moved)

    def start(self, executor: Executor, request: Redrive, cycle: Cycle, by: str | None) -> RedriveView | FairlaneError:
        """Order a redrive."""
        outcome = executor.execute(request, cycle, Given(by=by))
        if not isinstance(outcome, FairlaneError):
            number = redrive_number(outcome.id) or 0
            self._begin(executor.ledger, executor.ledger.redrives[number], cycle.now_ms)
        return outcome

    def stop(self, executor: Executor, redrive_id: str, cycle: Cycle, by: str | None) -> RedriveView | FairlaneError:
        """Stop a redrive, if it still runs."""
        try:
            search = self.running.get(redrive_number(redrive_id) or 0)
            if search is not None and search.state.end is None:
                end(executor, search, cycle, "stopped", by=by)
            self.dry_runs.stop(redrive_id, cycle.now_ms)
            return self.view(executor.ledger, redrive_id)
        except RedriveNotFound as error:
            return error

    # ---------------------------------------------------------------------------------------------------------- looking

    def view(self, ledger: Ledger, redrive_id: str) -> RedriveView:
        """Return how far a redrive is. Raises RedriveNotFound if there is none of this id."""
        state = ledger.redrives.get(redrive_number(redrive_id) or 0)
        view = self.dry_runs.view(redrive_id) if state is None else self._view(state)
        if view is None:
            raise RedriveNotFound(f"Redrive {redrive_id!r:.60} does not exist.")
        return view

    def _view(self, state: RedriveState) -> RedriveView:
        search = self.running.get(state.number)
        return state.view() if search is None else search.view()

    def views(self, ledger: Ledger) -> list[RedriveView]:
        """Return all that are known, the latest last."""
        views = self.dry_runs.views() + [(state.number, self._view(state)) for state in ledger.redrives.values()]
        return [view for _, view in sorted(views, key=itemgetter(0))]

    def running_in(self, queues: Collection[str]) -> tuple[RedriveView, ...]:
        """Return those that move dead letters out of queues now."""
        searches = self.running.values()
        return tuple(one.view() for one in searches if one.state.order.queue in queues and one.state.end is None)

    def next_step_at(self) -> int | None:
        """Return when the next step is due, None for never."""
        if self.dry_runs.running:
            return 0
        return min((search.next_ms for search in self.running.values()), default=None)

    # --------------------------------------------------------------------------------------------------------- stepping

    def step(self, executor: Executor, cycle: Cycle) -> None:
        """Take a step with each redrive that is due."""
        for number, search in list(self.running.items()):
            if search.state.end is None and search.next_ms <= cycle.now_ms:
                take_step(executor, search, cycle)
            if search.state.end is not None:
                del self.running[number]
        self.dry_runs.step(executor.ledger, cycle.now_ms)
