"""Candidates, sweeps and targets: what is understood, and what is refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import CandidateInvalid
from fairlane.model.policy import QueuePolicy
from fairlane.spark.whatif.advice import commands_of
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario, read_candidate
from fairlane.spark.whatif.sweeps import sweep
from fairlane.spark.whatif.targets import target_of

POLICIES = {"work": QueuePolicy(max_attempts=7), "mail": QueuePolicy()}
BASE = Scenario(name=ORIGINAL)


def _read(folder: Path, text: str, *, name: str = "candidate.toml") -> Scenario:
    path = folder / name
    path.write_text(text)
    return read_candidate(path, ["work", "mail"], POLICIES)


def test_a_candidate_has_fields_for_all_queues_and_for_one(tmp_path: Path) -> None:
    """Fields at the top are for all queues, those under a queue's name win there, and config stands by itself."""
    text = """
    quantum = 2
    paused = ["slow"]
    [queues.work]
    quantum = 4
    weights = { acme = 3 }
    [config]
    "throttle:api:rate" = 20
    """
    found = _read(tmp_path, text)
    assert found.fields == {"work": {"quantum": 4, "weights": {"acme": 3}}, "mail": {"quantum": 2}}
    assert found.config == {"throttle:api:rate": "20"}
    assert found.paused == {"work": {"slow": True}, "mail": {"slow": True}}


def test_a_candidate_may_be_json_and_repeat_the_policy(tmp_path: Path) -> None:
    """A field that can't be tried may be there as long as it says what the queue's policy says."""
    found = _read(tmp_path, '{"queues": {"work": {"max_attempts": 7, "quantum": 3}}}', name="candidate.json")
    assert found.fields["work"] == {"quantum": 3}


REFUSED = {
    "unknown field": ("wieghts = {}", "no field 'wieghts'"),
    "hook": ('on_enqueue = "return {}"', "cannot vary on_enqueue of queue 'work': it depends on headers"),
    "retries": ("max_attempts = 1", "the outcome of each attempt is taken from the journal"),
    "limit": ("waiting_max = 5", "messages that a limit refused"),
    "deadline": ("deadline_ms = 5", "terms of new messages"),
    "bad value": ("quantum = 0", "quantum must be an integer from 1"),
    "bad type": ('weights = { acme = "x" }', "Invalid queue policy"),
    "other queue": ("[queues.else]\nquantum = 1", "names queue 'else', which is not replayed"),
    "bad rate": ('[config]\n"throttle:api:rate" = "fast"', "throttle:api:rate"),
    "bad pause": ("paused = 3", "paused must be a list of fairness keys"),
    "no toml": ("= 3", "Could not read"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_tried_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A candidate that a broker would not take, or that a journal can't tell about, is refused with the reason."""
    with pytest.raises(CandidateInvalid, match=words):
        _read(tmp_path, text)


def test_sweeps_make_all_combinations() -> None:
    """Two weights and three caps are six scenarios, each named for what it sets."""
    found = sweep(BASE, ["weight:acme=1,5", "cap:bakery=2,4,none"], ["work"], POLICIES)
    assert [scenario.name for scenario in found][:3] == [
        "weight:acme=1, cap:bakery=2",
        "weight:acme=1, cap:bakery=4",
        "weight:acme=1, cap:bakery=none",
    ]
    assert len(found) == 6
    assert found[-1].config == {"weight:work:acme": "5", "cap:work:bakery": None}


def test_a_sweep_can_charge_tenants_by_cost() -> None:
    """``key_charge`` is tried like the other limits of every tenant; ``none`` is the default."""
    found = sweep(BASE, ["key_rate=10", "key_charge=same,cost,none"], ["work"], POLICIES)
    rate = {"key_rate": 10}
    fields = [scenario.fields["work"] for scenario in found]
    assert fields == [rate, rate | {"key_charge": "cost"}, rate | {"key_charge": "message"}]


def test_same_leaves_a_setting_as_it_was() -> None:
    """The value same sets nothing, and is not named."""
    found = sweep(BASE, ["weight:acme=same,5", "quantum=same,2"], ["work"], POLICIES)
    assert [scenario.name for scenario in found] == [ORIGINAL, "quantum=2", "weight:acme=5", "weight:acme=5, quantum=2"]
    assert found[0].config == {}


@pytest.mark.parametrize(
    "text",
    [
        "weight:acme",
        "weight:acme=",
        "=1",
        "weigth:acme=1",
        "weight=1",
        "quantum=x",
        "pause:acme=maybe",
        "weight:a=0",
        "key_charge=half",
    ],
)
def test_sweeps_that_make_no_sense_are_refused(text: str) -> None:
    """A sweep without values, of no known setting, or of values that it can't have is refused."""
    with pytest.raises(CandidateInvalid):
        sweep(BASE, [text], ["work"], POLICIES)


def test_too_many_combinations_are_refused() -> None:
    """Sweeps whose combinations would never end are refused with their number."""
    values = ",".join(map(str, range(1, 100)))
    with pytest.raises(CandidateInvalid, match="9801 combinations"):
        sweep(BASE, [f"weight:a={values}", f"weight:b={values}"], ["work"], POLICIES)


def test_targets_are_read_with_their_units() -> None:
    """Spans of time have units, shares may be in per cent, and without a key all are meant."""
    wait, share, misses = target_of("wait_p99:acme/web<=1.5s"), target_of("share:b >= 40%"), target_of("misses<=3")
    assert (wait.measure, wait.key, wait.is_most, wait.bound) == ("wait_p99", "acme/web", True, 1_500)
    assert (share.key, share.is_most, share.bound) == ("b", False, 0.4)
    assert (misses.key, misses.bound) == ("", 3)


@pytest.mark.parametrize("text", ["wait_p98:a<=1s", "wait_p99:a<1s", "wait_p99:a<=1", "share:a>=1s", "misses<=2%", "x"])
def test_targets_that_make_no_sense_are_refused(text: str) -> None:
    """An unknown measure, another sign, or a bound in the wrong unit is refused."""
    with pytest.raises(CandidateInvalid):
        target_of(text)


def test_a_proposal_is_told_as_commands() -> None:
    """What a scenario sets is what the commands set, with names quoted where a shell would misread them."""
    scenario = Scenario(
        name="",
        config={"weight:work:acme": "4", "cap:work:a b": None},
        fields={"work": {"quantum": 2}},
        paused={"work": {"slow": True}},
    )
    assert commands_of(scenario) == [
        "fairlane config set 'cap:work:a b' --unset",
        "fairlane config set weight:work:acme 4",
        "fairlane queue update work --set quantum=2",
        "fairlane queue pause work --key slow",
    ]
