"""The tuner: one round after the other on a live broker.

A round takes the last window of the journal. If the targets are met there, nothing happens. Otherwise it searches a
change on that window with what-if, applies it for as long as the watch takes, waits for one window, and judges it. A
change that holds is set again for longer; one that fails is undone.

Nothing here needs to be cleaned up. Every value that a tuner sets is temporary, so if the tuner dies at any point, the
broker restores the values before. And nothing is undone that someone else has changed since: the journal tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from fairlane.errors import CandidateInvalid, InvalidArgument, JournalIncomplete, ModelInaccurate
from fairlane.model.views import QueueView
from fairlane.spark.tune.costs import LearnedCost, learned_costs, works_of
from fairlane.spark.tune.judgement import Judgement, judge
from fairlane.spark.tune.recorder import Recorder, TunedBroker
from fairlane.spark.tune.rounds import Round, TuneOptions, reading
from fairlane.spark.tune.search import Search, search
from fairlane.spark.tune.tape import Row
from fairlane.spark.tune.trial import Event, Setting, SettingTrial
from fairlane.spark.whatif.accuracy import ERROR_MAX
from fairlane.spark.whatif.advice import Tried
from fairlane.spark.whatif.comparison import JOURNAL, Comparison, Journal
from fairlane.spark.whatif.recording import record
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.spark_runs import Progress
from fairlane.spark.whatif.sweeps import sweep

OWNER: Final = "tune"
"""The owner of every change in the journal."""
_GRACE_MS: Final = 60_000
"""How much longer than two windows a change on trial holds: the time to judge it."""


class Tuner:
    """Tunes one queue of a broker.

    Attributes:
        applied: the change that is on trial now; None between trials.
    """

    def __init__(
        self,
        broker: TunedBroker,
        options: TuneOptions,
        *,
        wait: Callable[[int], None],
        propose: Callable[..., Search] = search,
        tell: Callable[[str], None] = lambda _text: None,
        progress: Progress | None = None,
    ) -> None:
        """Prepare to tune.

        Args:
            broker: the broker.
            options: what is wanted, and what is allowed.
            wait: waits for a number of milliseconds.
            propose: finds a proposal, as ``search`` does.
            tell: called with what happens, for people.
            progress: called with how many runs of what-if are done, and how many there are.

        Raises:
            QueueNotFound: there is no such queue.
            CandidateInvalid: a sweep can't be understood, or is not of a setting that can be applied.
            InvalidArgument: the queue is split into partitions.
        """
        self._broker, self._options = broker, options
        self._wait, self._propose, self._tell, self._progress = wait, propose, tell, progress
        self._recorder = Recorder(broker, queue=options.queue, window_ms=options.window_ms)
        self._tape = self._recorder.tape
        self._changed_ms = self._looked_ms = 0
        self._failed: list[dict[str, str | None]] = []
        self._foreign: set[str] = set()
        self._rounds = 0
        self.applied: SettingTrial | None = None
        _check(broker.queue(options.queue), options)

    def round(self) -> Round:
        """Run one round, and return what came of it."""
        self._rounds += 1
        self._await_window()
        try:
            with self._recorder.exported() as (journal, known):
                done, proposal = self._proposed(journal, known)
        except (CandidateInvalid, JournalIncomplete, ModelInaccurate) as error:
            done, proposal = self._draft().ended("refused", error.cause), None
        if proposal is not None:
            done = self._watched(self._apply(proposal), known, done)
        if done.is_met or done.outcome != "kept":  # a change that helped too little is followed by the next at once
            self._looked_ms = self._tape.last_ms
        return done

    # ------------------------------------------------------------------------------------------------------- a round

    def _proposed(self, journal: Journal, known: Comparison) -> tuple[Round, Tried | None]:
        """Return the round so far, and the change to apply, if any."""
        options = self._options
        measured = known.of(JOURNAL, options.queue)
        draft = self._draft(before=reading(measured, options.targets), costs=self._costs(journal))
        if draft.before is not None and not any(target.lack(measured) for target in options.targets):
            self._renew()
            return draft.ended("met", "the targets are met", is_met=True), None
        found = self._propose(
            journal,
            known,
            options.targets,
            worse_max=options.worse_max,
            current=self._broker.list_config(),
            avoid=self._is_avoided,
            sweeps=options.sweeps,
            span=self._recorder.span(),
            progress=self._progress,
        )
        proposal, error = found.proposal, found.error.error
        if proposal is None:
            return draft.ended(SettingTrial().after("forecast_fails").state, found.why, error=error), None
        why = "a dry run applies nothing" if options.is_dry_run else ""
        state = SettingTrial().after("forecast_passes").state
        draft = draft.ended(state, why, changes=proposal.config, forecast=proposal.values, error=error)
        return draft, None if options.is_dry_run else proposal

    def _is_avoided(self, values: Mapping[str, str | None]) -> bool:
        """Return whether values have failed before, or concern a setting that someone else has taken over."""
        return values in self._failed or not self._foreign.isdisjoint(values)

    def _draft(self, *, before: list[float] | None = None, costs: Sequence[LearnedCost] = ()) -> Round:
        targets = [target.text for target in self._options.targets]
        return Round(number=self._rounds, targets=targets, before=before, costs=list(costs))

    def _watched(self, trial: SettingTrial, known: Comparison, draft: Round) -> Round:
        """Wait for one window, and keep or undo a change."""
        options = self._options
        self._wait(options.window_ms)
        self._recorder.read()
        self._tape.forget_before(trial.applied_ms)
        trial = trial.after("window_passed")
        intrusion = self._intrusion(trial)
        if intrusion is not None:
            return self._left_alone(trial.after(intrusion), draft)
        verdict = self._judged(trial, known)
        if verdict.holds:
            trial = trial.after("holds")
            self._set(trial.values, f"kept: {verdict.why}", expire_after_ms=options.keep_ms)
        else:
            trial = trial.after("fails")
            self._restore(trial, f"rolled back: {verdict.why}")
            self._failed.append(trial.values)
        self.applied = None
        told = {"after": verdict.values, "is_met": verdict.is_met and verdict.holds}
        return draft.ended(trial.state, verdict.why, worse=verdict.worse, worse_key=verdict.worse_key, **told)

    def _apply(self, proposal: Tried) -> SettingTrial:
        values, temporary = self._broker.list_config(), self._broker.list_temporary_config()
        expiries = {one.key: one.expires_ms for one in temporary}
        before = {key: Setting(values.get(key), expiries.get(key)) for key in proposal.config}
        wanted = ", ".join(target.text for target in self._options.targets)
        self._tell(f"apply {proposal.name}")
        trial = SettingTrial(values=proposal.config, before=before).after("forecast_passes").after("set")
        self.applied = trial  # also if this is interrupted before the broker has answered
        hold_ms = 2 * self._options.window_ms + _GRACE_MS
        done = self._set(trial.values, f"tried: {wanted}", expire_after_ms=hold_ms)
        self._changed_ms = done["at_ms"]
        trial = msgspec.structs.replace(trial, applied_ms=done["at_ms"], sequence=done["sequence"])
        self.applied = trial
        return trial

    def _judged(self, trial: SettingTrial, before: Comparison) -> Judgement:
        options = self._options
        old = Scenario(name="before", config={key: known.value for key, known in trial.before.items()})
        was = before.of(JOURNAL, options.queue)
        try:
            with self._recorder.exported(old) as (_, found):
                now = found.of(JOURNAL, options.queue)
                is_reliable = found.errors[0].error <= ERROR_MAX
                without = found.of(1, options.queue) if is_reliable else None
        except JournalIncomplete:  # nothing was enqueued
            now, without = {}, None
        return judge(was, now, options.targets, worse_max=options.worse_max, without=without)

    def _intrusion(self, trial: SettingTrial) -> Event | None:
        """Return what happened to a change that is still on trial, if it is no longer as it was set."""
        current = self._broker.list_config()
        for key, value in trial.values.items():
            later = [row for row in self._tape.changes_of(key) if row["sequence"] > trial.sequence]
            if later and later[-1].get("owner") == OWNER and later[-1].get("reason") == "expiry":
                return "ran_out"
            if later or current.get(key) != value:
                return "changed_by_others"
        return None

    def _left_alone(self, trial: SettingTrial, draft: Round) -> Round:
        self._changed_ms, self.applied = self._tape.last_ms, None
        if trial.state == "superseded":
            self._foreign.update(trial.values)
        why = {
            "superseded": "someone else has changed the setting; it is left alone",
            "expired": "the change expired before it could be judged",
        }[trial.state]
        return draft.ended(trial.state, why)

    # ------------------------------------------------------------------------------------------------------- settings

    def _set(self, values: Mapping[str, str | None], reason: str, *, expire_after_ms: int | None) -> Row:
        """Set values, and return the last of these changes as the journal has it."""
        self._broker.set_config_many(values, owner=OWNER, reason=reason, expire_after_ms=expire_after_ms)
        self._recorder.read()
        return max((self._tape.changes_of(key)[-1] for key in values), key=lambda row: int(row["sequence"]))

    def _restore(self, trial: SettingTrial, reason: str) -> None:
        """Set what was before. What was temporary before keeps its own expiry."""
        now_ms = self._tape.last_ms
        lasting = {key: known.value for key, known in trial.before.items() if known.expires_ms is None}
        if lasting:
            self._changed_ms = self._set(lasting, reason, expire_after_ms=None)["at_ms"]
        for key, known in trial.before.items():
            if known.expires_ms is not None:
                left_ms = max(1, known.expires_ms - now_ms)
                self._changed_ms = self._set({key: known.value}, reason, expire_after_ms=left_ms)["at_ms"]

    def _renew(self) -> None:
        """Prolong what earlier rounds kept, while the targets are met with it."""
        keep_ms = self._options.keep_ms
        values = self._broker.list_config()
        for one in self._broker.list_temporary_config():
            if one.owner == OWNER and one.expires_ms - self._tape.last_ms < keep_ms // 2:
                self._set({one.key: values.get(one.key)}, "kept: the targets are met", expire_after_ms=keep_ms)

    # --------------------------------------------------------------------------------------------------------- windows

    def _await_window(self) -> None:
        """Read the journal, and wait until the settings in force have had a whole window."""
        self._recorder.read()
        began_ms = max(self._tape.first_ms or self._tape.last_ms, self._changed_ms, self._looked_ms)
        lacks_ms = self._options.window_ms - (self._tape.last_ms - began_ms)
        if lacks_ms > 0:
            self._tell("wait for a window of traffic")
            self._wait(lacks_ms)
            self._recorder.read()
        self._tape.forget_before(max(self._changed_ms, self._tape.last_ms - self._options.window_ms))

    def _costs(self, journal: Journal) -> list[LearnedCost]:
        return learned_costs(works_of(record(journal.files, journal.groups[0]), self._options.queue))


def _check(view: QueueView, options: TuneOptions) -> None:
    """Check that a queue can be tuned, and that what is swept can be applied."""
    if view.partitions > 1:
        raise InvalidArgument(f"Queue {view.name!r} is split into {view.partitions} partitions; tune can't replay it.")
    for scenario in sweep(Scenario(name=ORIGINAL), options.sweeps, [options.queue], {options.queue: view.policy}):
        if scenario.fields or scenario.paused or scenario.load:
            raise CandidateInvalid(f"tune applies weights, caps, rates and bursts, not {scenario.name}.")
