"""The pure rules of tuning: states of a trial, which proposal is chosen, which change may stay, learned costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest

from fairlane.model.message import Key
from fairlane.spark.tune.costs import learned_costs
from fairlane.spark.tune.judgement import judge
from fairlane.spark.tune.search import choose, why_not
from fairlane.spark.tune.tape import Tape
from fairlane.spark.tune.trial import FINAL, TRANSITIONS, Event, SettingTrial, State
from fairlane.spark.whatif.advice import Tried
from fairlane.spark.whatif.measures import KeyMeasures
from fairlane.spark.whatif.targets import rise, target_of

TARGET = target_of("wait_p99:acme<=1s")

WAYS = {
    ("forecast_fails",): "refused",
    ("forecast_passes", "set", "window_passed", "holds"): "kept",
    ("forecast_passes", "set", "window_passed", "fails"): "rolled_back",
    ("forecast_passes", "set", "window_passed", "changed_by_others"): "superseded",
    ("forecast_passes", "set", "window_passed", "ran_out"): "expired",
    ("forecast_passes", "set", "changed_by_others"): "superseded",
    ("forecast_passes", "set", "ran_out"): "expired",
}
"""Every way that a trial can go, and where it ends."""


def test_every_way_of_a_trial_ends_as_it_should() -> None:
    """A walk over all sequences of events finds these ways and no others."""

    def walk(trial: SettingTrial, way: tuple[Event, ...]) -> dict[tuple[Event, ...], State]:
        if trial.state in FINAL:
            return {way: trial.state}
        found: dict[tuple[Event, ...], State] = {}
        for event in get_args(Event):
            if (trial.state, event) in TRANSITIONS:
                found |= walk(trial.after(event), (*way, event))
        return found

    assert walk(SettingTrial(), ()) == WAYS


@pytest.mark.parametrize("state", get_args(State))
def test_no_other_event_changes_a_trial(state: State) -> None:
    """An event that is not in the table of a state is a bug, also in a final state."""
    allowed = {event for known, event in TRANSITIONS if known == state}
    for event in set(get_args(Event)) - allowed:
        with pytest.raises(KeyError):
            SettingTrial(state=state).after(event)


def key(name: str, wait_ms: int, *, messages: int = 100, misses: int = 0, left: int = 0) -> KeyMeasures:
    """Return a key whose messages all wait equally long."""
    return KeyMeasures(
        scenario=0,
        queue="q",
        key=name,
        messages=messages,
        leased=messages - misses - left,
        misses=misses,
        left=left,
        wait_p50_ms=wait_ms,
        wait_p99_ms=wait_ms,
        wait_max_ms=wait_ms,
        wait_mean_ms=float(wait_ms),
        share=0.5,
        throttled_ms=0,
        capped_ms=0,
        paused_ms=0,
    )


def window(**waits_ms: int) -> dict[str, KeyMeasures]:
    """Return the keys of a window by their waits."""
    return {name: key(name, wait_ms) for name, wait_ms in waits_ms.items()}


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (key("a", 1_000), key("a", 1_100), 0.1),
        (key("a", 1_000), key("a", 500), 0.0),
        (key("a", 5), key("a", 15), 0.0),
        (key("a", 0), key("a", 50), 5.0),
        (key("a", 1_000), key("a", 1_000, misses=20), 0.2),
        (key("a", 1_000), key("a", 1_000, left=20), 0.0),
        (key("a", 1_000), key("a", 1_000, left=90), 0.9),
    ],
)
def test_a_key_is_worse_off_by_its_waits_and_by_what_it_loses(
    before: KeyMeasures, after: KeyMeasures, by: float
) -> None:
    """Ten milliseconds more are nothing, missed deadlines count, and a key that gets nothing is worse off."""
    assert rise(before, after) == pytest.approx(by)


def test_keys_with_few_messages_are_judged_by_their_mean() -> None:
    """The p99 of ten messages is one message, so it does not count."""
    before, after = key("a", 100, messages=10), key("a", 100, messages=10)
    assert rise(before, msgspec.structs.replace(after, wait_p99_ms=9_000)) == 0.0
    assert rise(before, msgspec.structs.replace(after, wait_mean_ms=200.0)) == 1.0


@pytest.mark.parametrize(
    ("after", "without", "holds", "is_met"),
    [
        (window(acme=900, other=1_050), None, True, True),
        (window(acme=1_500, other=1_000), None, True, False),  # better than before, and not there yet
        (window(acme=900, other=1_200), None, False, True),  # another key suffers
        (window(acme=2_500, other=1_000), None, False, False),  # the target is missed by more
        (window(acme=900, other=1_200), window(acme=9_000, other=1_150), True, True),  # the traffic's fault
        (window(acme=2_500, other=1_000), window(acme=3_000, other=1_000), True, False),
        (window(acme=900, other=1_200), window(acme=900, other=1_000), False, True),
        (window(other=1_000), None, False, False),  # nothing to judge the target by
        ({}, None, False, False),
        (window(acme=900, other=1_000, fresh=9_000), None, True, True),  # a key that was not there before
    ],
)
def test_a_change_stays_if_it_harms_no_one(
    after: dict[str, KeyMeasures], without: dict[str, KeyMeasures] | None, *, holds: bool, is_met: bool
) -> None:
    """It is judged by the window before, and excused by what the old settings would have done on the same traffic."""
    found = judge(window(acme=2_000, other=1_000), after, [TARGET], worse_max=0.1, without=without)
    assert (found.holds, found.is_met) == (holds, is_met)


def tried(name: str, value: float, *, worse: float = 0.0, cost_ms: float = 0.0, changes: int = 1) -> Tried:
    """Return a setting with its forecast for the target."""
    return Tried(
        name=name,
        values=[value],
        is_met=value <= TARGET.bound,
        lack=max(0.0, value / TARGET.bound - 1),
        left=0,
        cost_ms=cost_ms,
        changes=changes,
        worse=worse,
        worse_key="other" if worse else None,
    )


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ([], None),
        ([tried("a", 1_001)], None),
        ([tried("a", 500, worse=0.11)], None),
        ([tried("a", 999)], "a"),
        ([tried("a", 999), tried("b", 900, cost_ms=5)], "b"),  # a just meets it, within the model's error
        ([tried("a", 900, cost_ms=5), tried("b", 900)], "b"),
        ([tried("a", 900, changes=2), tried("b", 900, cost_ms=5)], "b"),
        ([tried("a", 500, worse=0.2), tried("b", 900, worse=0.1)], "b"),
    ],
)
def test_the_smallest_change_with_a_margin_is_chosen(settings: list[Tried], chosen: str | None) -> None:
    """Of the settings within the rails, those with a margin come first, then those with fewer changes and less cost."""
    found = choose(settings, [TARGET], worse_max=0.1, margin=0.0)
    assert (None if found is None else found.name) == chosen


def test_a_refusal_names_the_rail_or_the_target() -> None:
    """It tells whether no setting meets the targets, or which key the best of them would harm."""
    assert why_not([tried("a", 2_000)], worse_max=0.1) == "none of 1 settings meets the targets"
    assert "make other 20% worse, more than 10%" in why_not([tried("a", 900, worse=0.2)], worse_max=0.1)


def test_costs_follow_the_work() -> None:
    """Keys that declare the same and take eight times as long get eight times the cost; few messages tell nothing."""
    works: Sequence[tuple[Key, int, int]] = (
        [("slow", 1, 800)] * 60 + [(("fast", "web"), 1, 100)] * 60 + [("rare", 1, 9_999)] * 10
    )
    assert [(one.key, one.declared, one.work_ms, one.cost) for one in learned_costs(works)] == [
        ("fast/web", 1.0, 100.0, 1),
        ("slow", 1.0, 800.0, 8),
    ]
    assert learned_costs([("slow", 8, 800)] * 60 + [("fast", 1, 100)] * 60) == []
    assert learned_costs([]) == []


def test_a_tape_keeps_what_matters_at_its_beginning() -> None:
    """Settings in force and open messages come first, at the beginning of the window; what has ended is gone."""
    tape = Tape()
    message = {"queue": "q", "message_id": "1"}
    told: list[dict[str, Any]] = [
        {"kind": "queue_set", "queue": "q", "policy_json": "{}"},
        {"kind": "config_set", "name": "x", "value": "1"},
        {"kind": "config_set", "name": "x", "value": "2"},
        {"kind": "config_set", "name": "gone", "value": "1"},
        {"kind": "config_set", "name": "gone"},
        {"kind": "queue_paused", "queue": "q", "fairness_key": ["a"], "is_paused": True},
        {"kind": "queue_paused", "queue": "q", "is_paused": True},
        {"kind": "queue_paused", "queue": "q", "is_paused": False},
        {"kind": "enqueued", **message},
        {"kind": "leased", **message, "value": "[]"},
        {"kind": "returned", **message, "due_ms": 99},
        {"kind": "leased", **message},
        {"kind": "enqueued", **message, "message_id": "2"},
        {"kind": "acked", **message, "message_id": "2"},
    ]
    events = [{**row, "sequence": at, "record": at, "at_ms": 10 * at} for at, row in enumerate(told, 1)]
    tape.add([*events, {"kind": "acked", **message, "sequence": 99, "record": 99, "at_ms": 1_000}], keep_ms=100)
    found = [(row["sequence"], row["kind"], row["at_ms"], row.get("due_ms")) for row in tape.rows()]
    assert found == [
        (1, "queue_set", 899, None),
        (3, "config_set", 899, None),
        (6, "queue_paused", 899, None),
        (9, "enqueued", 899, 99),
        (12, "leased", 899, None),
        (99, "acked", 1_000, None),
    ]


def test_a_tape_is_bounded() -> None:
    """A window with too many events is shortened to its latest ones."""
    tape = Tape(events_max=3)
    tape.add([{"kind": "extended", "sequence": at, "at_ms": at} for at in range(10)], keep_ms=1_000)
    assert [row["sequence"] for row in tape.rows()] == [7, 8, 9]
    assert tape.since_ms == 7


def test_a_removed_queue_takes_its_messages_along() -> None:
    """Messages and pauses of a queue that was removed before the window are not carried into it."""
    tape = Tape()
    events = [
        {"kind": "queue_set", "queue": "q", "policy_json": "{}"},
        {"kind": "enqueued", "queue": "q", "message_id": "1"},
        {"kind": "redriven", "queue": "r.dlq", "target": "q", "message_id": "2"},
        {"kind": "queue_removed", "queue": "q"},
        {"kind": "opened"},
    ]
    tape.add([{**row, "sequence": at, "at_ms": 10 * at} for at, row in enumerate(events)], keep_ms=0)
    assert [row["kind"] for row in tape.rows()] == ["opened"]
