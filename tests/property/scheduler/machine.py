"""The kernel and the naive model of its rules, driven side by side by Hypothesis."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlane.scheduler import (
    Backpressure,
    DepartureReason,
    Explanation,
    Kernel,
    Key,
    KeyPolicy,
    Priority,
    RefusalReason,
    WaitReason,
)
from tests.property.scheduler.model import CHARGED_BY_COST, KEY_RATES, Entry, ExactBucket, Job, Rules, path, prefixes
from tests.property.scheduler.soundness import check_soundness

KEYS: list[Key] = ["a", ("a", "x"), ("a", "x", "deep"), "b", ("b", "x"), ("b", "y"), "c", "d"]
POLICY_KEYS: list[Key] = ["a", ("a", "x"), "b", ("b", "y"), "c"]
THROTTLES = ["t", "u"]
PROVIDERS = {
    "none": None,
    "heavy b": lambda key: KeyPolicy(weight=5) if key == "b" else None,
    "quantum": lambda key: KeyPolicy(quantum=len(key)) if key != "c" else None,
    "rates": lambda key: KeyPolicy(**rate_of(key)),
}


def rate_of(key: Key) -> dict[str, Any]:
    """Return the rate and burst of a key's policy, if it may have one."""
    rate, burst = KEY_RATES.get(path(key), (None, None))
    return {"rate": rate, "burst": burst, "charges_cost": path(key) in CHARGED_BY_COST}


keys = st.sampled_from(KEYS)
costs = st.sampled_from([1, 1, 1, 2, 5, 40])
priorities = st.sampled_from(list(Priority))
throttle_sets = st.sampled_from([(), (), ("t",), ("u",), ("t", "u")])
soon = st.none() | st.integers(0, 30)
backpressures = st.sampled_from(list(Backpressure))


@st.composite
def job_fields(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a job; ``due`` and ``deadline`` count from the instant it is offered."""
    if draw(st.booleans()):
        return {"key": draw(keys), "cost": draw(costs)}
    return {
        "key": draw(keys),
        "cost": draw(costs),
        "priority": draw(priorities),
        "throttles": draw(throttle_sets),
        "due": draw(soon),
        "deadline": draw(st.none() | st.integers(-1, 40)),
    }


class KernelMachine(RuleBasedStateMachine):
    """Every call of the kernel in every order. The model must agree with every answer."""

    @initialize(
        quantum=st.sampled_from([1, 1, 3, 50]),
        waiting_max=st.none() | st.integers(1, 8),
        key_waiting_max=st.none() | st.integers(1, 4),
        backpressure=backpressures,
        is_strict=st.booleans(),
        counts_use=st.booleans(),
        idle_keys_max=st.sampled_from([0, 1, 2, 1024]),
    )
    def make(
        self,
        quantum: int,
        waiting_max: int | None,
        key_waiting_max: int | None,
        backpressure: Backpressure,
        is_strict: bool,
        counts_use: bool,
        idle_keys_max: int,
    ) -> None:
        self.kernel: Kernel[Job] = Kernel(
            quantum=quantum,
            waiting_max=waiting_max,
            key_waiting_max=key_waiting_max,
            backpressure=backpressure,
            strict_priority=is_strict,
            counts_use=counts_use,
            idle_keys_max=idle_keys_max,
        )
        self.model = Rules(
            waiting_max=waiting_max,
            key_waiting_max=key_waiting_max,
            backpressure=backpressure,
            is_strict=is_strict,
        )
        self.counts_use = counts_use
        self.now_ms = 0
        self.jobs: list[Job] = []
        self.gone: list[Job] = []
        self.fates: Counter[str] = Counter()
        self.unreported: list[tuple[int, DepartureReason]] = []

    # ---------------------------------------------------------------------------------------------------- offers

    @rule(fields=job_fields())
    def offer(self, fields: dict[str, Any]) -> None:
        self._offered(job := self._job(fields), self.kernel.offer(job, self.now_ms))

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def offer_again(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.gone[-5:]))
        self.gone.remove(job)
        self._offered(job, self.kernel.offer(job, self.now_ms))

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data())
    def offer_what_waits(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.model.entries)).job
        refusal = self.kernel.offer(job, self.now_ms)
        assert refusal is not None
        assert refusal.reason is RefusalReason.ALREADY_WAITING

    @rule(batch=st.lists(job_fields(), max_size=6))
    def offer_many(self, batch: list[dict[str, Any]]) -> None:
        """Offer a batch; where victims may be dropped, offer one by one, so that each offer can be checked."""
        limits = (self.model.waiting_max, self.model.key_waiting_max)
        has_policies = bool(self.model.policies)
        jobs = [self._job(fields) for fields in batch]
        if limits != (None, None) or has_policies:
            for job in jobs:
                refusals = self.kernel.offer_many([job], self.now_ms)
                self._offered(job, refusals[0] if refusals else None)
            return
        assert self.kernel.offer_many(jobs, self.now_ms) == []
        for job in jobs:
            self._offered(job, None)

    def _job(self, fields: dict[str, Any]) -> Job:
        fields = dict(fields)
        due, deadline = fields.pop("due", None), fields.pop("deadline", None)
        job = Job(
            len(self.jobs),
            due_ms=None if due is None else self.now_ms + due,
            deadline_ms=None if deadline is None else self.now_ms + deadline,
            **fields,
        )
        self.jobs.append(job)
        return job

    def _offered(self, job: Job, refusal: Any) -> None:
        self.fates["offered"] += 1
        verdict = self.model.judge(job)
        if verdict.refusal is not None and (refusal is not None or not verdict.victims):
            assert refusal is not None, f"{job} should have been refused: {verdict}"
            assert (refusal.item, refusal.reason) == (job, verdict.refusal)
            assert verdict.refusing_key is None or path(refusal.key) == verdict.refusing_key
            self.fates["refused"] += 1
            self.gone.append(job)
            return
        assert refusal is None, f"{job} should have been accepted, not {refusal}"
        if verdict.victims:
            dropped = [victim for victim in verdict.victims if not victim.is_waiting]
            assert len(dropped) == 1, f"one of {verdict.victims} should have made room, not {dropped}"
            self.model.remove(dropped[0])
            self._left(dropped[0], DepartureReason.DROPPED)
        self.model.accept(job)
        self._note_expired()

    # ------------------------------------------------------------------------------------------------ out and time

    @rule(count=st.integers(0, 8), later=st.integers(0, 15))
    def take(self, count: int, later: int) -> None:
        self._move(later)
        jobs = self.kernel.take(count, self.now_ms)
        assert len(jobs) <= count
        for job in jobs:
            eligible = self.model.eligible()
            assert any(entry.job is job for entry in eligible), f"{job} was handed out; eligible: {eligible}"
            self._check_rank(job, eligible)
            self.model.hand_out(job)
            self.fates["handed out"] += 1
            self.gone.append(job)
        if len(jobs) < count:
            assert [entry for entry in self.model.eligible() if not self.model.is_saved_for_another(entry)] == []
            self._check_next_event()

    def _check_next_event(self) -> None:
        """A consumer that sleeps until the next event after a short take misses nothing."""
        expected, at_ms = self.model.next_eligible_at(), self.kernel.next_event_at()
        assert expected is None or (at_ms is not None and at_ms <= expected)

    def _check_rank(self, job: Job, eligible: list[Entry]) -> None:
        """Assert that no item of a higher priority that certainly had its tokens should have gone first."""
        for entry in eligible:
            is_rival = self.model.is_strict or entry.path == path(job.key)
            if is_rival and not self.model.buckets_of(entry):
                assert entry.job.priority >= job.priority, f"{entry.job} should have gone before {job}"

    @rule(later=st.integers(0, 25))
    def reap(self, later: int) -> None:
        self._move(later)
        departures = self.kernel.reap(self.now_ms)
        reported = [(self._number(departure.item), departure.reason) for departure in departures]
        assert sorted(reported, key=str) == sorted(self.unreported, key=str)
        self.unreported = []

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.model.entries)).job
        assert self.kernel.cancel(job)
        assert not self.kernel.cancel(job)
        self.model.remove(job)
        self.fates["cancelled"] += 1
        self.gone.append(job)

    @precondition(lambda self: self.counts_use and +self.model.in_use)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(+self.model.in_use)))
        count = data.draw(st.integers(1, self.model.in_use[key]))
        self.kernel.release(key, count)
        self.model.in_use[key] -= count

    @rule(key=keys, difference=st.integers(-60, 60))
    def settle(self, key: Key, difference: int) -> None:
        self.kernel.settle(key, difference)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), later=st.integers(0, 20))
    def explain_later(self, data: st.DataObject, later: int) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        was_waiting = self.model.is_waiting(job)
        self._move(later)
        explanation = self.kernel.explain(job, self.now_ms)
        if was_waiting and not self.model.is_waiting(job):
            assert explanation.reason in (WaitReason.EXPIRED, WaitReason.NOT_WAITING)
        else:
            self._check_explanation(job, explanation)

    # --------------------------------------------------------------------------------------------------- policies

    @rule(
        key=st.sampled_from(POLICY_KEYS),
        weight=st.sampled_from([1, 2, 10]),
        quantum=st.sampled_from([None, 1, 7]),
        cap=st.none() | st.integers(0, 3),
        waiting_max=st.none() | st.integers(1, 6),
        backpressure=st.none() | backpressures,
        has_rate=st.booleans(),
    )
    def set_policy(
        self,
        key: Key,
        weight: int,
        quantum: int | None,
        cap: int | None,
        waiting_max: int | None,
        backpressure: Backpressure | None,
        has_rate: bool,
    ) -> None:
        policy = KeyPolicy(
            weight=weight,
            quantum=quantum,
            cap=cap if self.counts_use else None,
            waiting_max=waiting_max,
            backpressure=backpressure,
            **(rate_of(key) if has_rate else {}),
        )
        self.kernel.set_policy(key, policy)
        self.model.policies[path(key)] = policy

    @rule(key=st.sampled_from(POLICY_KEYS))
    def clear_policy(self, key: Key) -> None:
        self.kernel.clear_policy(key)
        self.model.policies.pop(path(key), None)

    @rule(name=st.sampled_from(list(PROVIDERS)))
    def set_provider(self, name: str) -> None:
        self.kernel.set_policy_provider(PROVIDERS[name])
        self.model.provider = PROVIDERS[name]

    @rule(key=keys)
    def pause(self, key: Key) -> None:
        self.kernel.pause(key)
        self.model.paused.add(path(key))

    @rule(key=keys)
    def resume(self, key: Key) -> None:
        self.kernel.resume(key)
        self.model.paused.discard(path(key))

    # -------------------------------------------------------------------------------------------------- throttles

    @rule(
        name=st.sampled_from(THROTTLES),
        rate=st.sampled_from([0, 1, 50, 125, 500]),
        burst=st.sampled_from([1, 2, 5]),
        tokens=st.sampled_from([None, None, 0, 1, 3]),
    )
    def set_throttle(self, name: str, rate: int, burst: int, tokens: int | None) -> None:
        self.kernel.throttles.set(name, rate=rate, burst=burst, tokens=tokens, now_ms=self.now_ms)
        old = self.model.buckets.get(name)
        level = Fraction(burst if tokens is None else tokens)
        if old is not None and tokens is None:
            level = old.level_at(self.now_ms)
        self.model.buckets[name] = ExactBucket(
            Fraction(rate), Fraction(burst), min(level, Fraction(burst)), self.now_ms
        )

    @rule(name=st.sampled_from(THROTTLES))
    def remove_throttle(self, name: str) -> None:
        assert self.kernel.throttles.remove(name, now_ms=self.now_ms) == (name in self.model.buckets)
        self.model.buckets.pop(name, None)

    # ----------------------------------------------------------------------------------------- after every step

    @invariant()
    def agrees_with_the_model(self) -> None:
        waiting = [entry.job for entry in self.model.entries]
        check_soundness(self.kernel, waiting)
        for key in KEYS:
            assert self.kernel.waiting(key) == self.model.waiting(path(key))
            if self.counts_use:
                used = self.model.used(path(key))
                assert self.kernel.in_use(key) == used
        assert self.fates["offered"] == len(waiting) + sum(
            count for fate, count in self.fates.items() if fate != "offered"
        )
        for job in waiting:
            self._check_explanation(job, self.kernel.explain(job, self.now_ms))

    @invariant()
    def has_no_event_in_the_past(self) -> None:
        at_ms = self.kernel.next_event_at()
        assert at_ms is None or at_ms >= self.now_ms

    # ----------------------------------------------------------------------------------------------------- inside

    def _move(self, later: int) -> None:
        self.now_ms += later
        self.model.move_to(self.now_ms)
        self._note_expired()

    def _note_expired(self) -> None:
        for job in self.model.expired:
            self._left(job, DepartureReason.EXPIRED)
        self.model.expired = []

    def _left(self, job: Job, reason: DepartureReason) -> None:
        self.fates[reason.value] += 1
        self.unreported.append((job.number, reason))
        self.gone.append(job)

    def _number(self, item: object) -> int:
        assert isinstance(item, Job)
        return item.number

    def _check_explanation(self, job: Job, explanation: Explanation) -> None:
        if not self.model.is_waiting(job):
            assert explanation.reason is WaitReason.NOT_WAITING
            return
        entry = self.model.entry(job)
        reason, key = self.model.reason(entry)
        assert explanation.reason is reason, f"{job} is {reason}, not {explanation}"
        if reason is not WaitReason.THROTTLED:
            assert (None if explanation.key is None else path(explanation.key)) == key
        if reason is WaitReason.NOT_DUE:
            assert explanation.until_ms == job.due_ms
        if reason is WaitReason.ELIGIBLE:
            assert explanation.turns is not None
            assert explanation.turns >= 0
        if reason is WaitReason.THROTTLED:
            tokens_at = self.model.tokens_at(self.model.head_of(entry))
            known = [at for at in tokens_at if at is not None]
            assert explanation.until_ms == (max(known) if len(known) == len(tokens_at) else None)
            is_rate = explanation.key is not None and path(explanation.key) in prefixes(entry.path)
            assert is_rate or explanation.throttle in job.throttles
