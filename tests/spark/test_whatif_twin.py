"""The array twin of what-if: the same decisions as the scheduler's kernel, or it does not play."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fairlane.model.message import NewMessage
from fairlane.spark.whatif.attempts import ACKED, DEAD, EXPIRED, EXPIRED_DEAD, RETURNED
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.files import journal_files
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.page import page_of
from fairlane.spark.whatif.recording import Recording, record_with_steps
from fairlane.spark.whatif.rows import LEASE
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import setting_of, sweep
from fairlane.spark.whatif.twin.choice import MESSAGES_MIN, Players, beginning
from fairlane.spark.whatif.twin.support import obstacle_in
from fairlane.spark.whatif.twin.twin import ArrayTwin
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal
from tests.spark.whatif_journals import exported, stepped_broker

AS_IT_WAS = Scenario(name=ORIGINAL)
PLAIN = Traffic(
    messages=400, span_ms=20_000, tenants=9, consumers=4, load=1.1, failing_part=0.1, poison_part=0.0,
    vanishing_part=0.02, delayed_part=0.1, cost_max=40,
)  # fmt: skip


def _ends(chance: random.Random) -> list[int]:
    """How the attempts of a message end: some go back, the last one is the last."""
    back = chance.choices([RETURNED, EXPIRED], k=chance.choice([0, 0, 0, 1, 2]))
    return [*back, chance.choice([ACKED] * 9 + [DEAD, EXPIRED_DEAD])]


def _recording(
    chance: random.Random, *, messages: int, keys: int, cost_max: int = 1, settles: bool = False
) -> Recording:
    """A recording with everything that the twin plays: costs, due times, retries, lost consumers, true costs."""
    ends = [_ends(chance) for _ in range(messages)]
    end = [one for each in ends for one in each]
    hold_ms = [chance.randrange(60) for _ in end]
    at_ms = sorted(chance.randrange(messages * 4) for _ in range(messages))
    due_ms = [at + chance.randrange(200) if chance.random() < 0.1 else None for at in at_ms]
    nothing = np.zeros(messages, dtype=np.int64)
    return Recording(
        queues=("work",), sequence=1, first_ms=0, last_ms=messages * 4, queue=[0] * messages, at_ms=at_ms,
        key=[f"k{chance.randrange(keys)}" for _ in range(messages)],
        cost=[chance.randint(1, cost_max) for _ in range(messages)],
        priority=[1] * messages, throttles=[()] * messages, due_ms=due_ms, deadline_ms=[None] * messages,
        weight=[0] * messages, cap=[None] * messages, order_key=[None] * messages,
        first=[0, *accumulate(map(len, ends))][:-1], hold_ms=hold_ms,
        busy_ms=[chance.randint(0, hold) for hold in hold_ms], end=end,
        delay_ms=[chance.choice([0, 0, 30]) if one in (RETURNED, EXPIRED) else 0 for one in end],
        settle=[chance.randint(-cost_max, cost_max) if settles and one == ACKED else 0 for one in end],
        changes=[], consumers=[[ConsumerKind(counts=_counts(chance))]], leased_ms=nothing - 1, throttled_ms=nothing,
        capped_ms=nothing, paused_ms=nothing, tells=False, is_plain=True, is_timed=True, assumed=0, unknown=[0],
    )  # fmt: skip


def _counts(chance: random.Random) -> list[tuple[int, int]]:
    instants = sorted(chance.sample(range(1, 2_000), chance.randint(0, 5)))
    return [(0, chance.randint(0, 4)), *((at_ms, chance.randint(0, 5)) for at_ms in instants), (2_000, 3)]


def _kind(chance: random.Random) -> ConsumerKind:
    asks = chance.randint(1, 6)
    holds = asks + chance.randint(0, 4)
    rests_ms = [chance.randint(0, 50) for _ in range(chance.randint(0, 4))]
    return ConsumerKind(
        holds=holds, asks=asks, refills=chance.randint(0, holds - 1), works=chance.randint(1, 3), rests_ms=rests_ms,
        counts=_counts(chance),
    )  # fmt: skip


def _play_alike(recording: Recording, scenario: Scenario) -> None:
    """Both players lease every message at the same instant, and agree on which were contended."""
    assert obstacle_in(recording) == ""
    expected = play(recording, scenario, messages_of(recording))
    assert ArrayTwin(recording).play(scenario) == expected
    assert max(expected.leased_ms) > 0


WEIGHTED = [AS_IT_WAS, setting_of("weight:k1", "3", ["work"]), setting_of("quantum", "7", ["work"])]


@pytest.mark.parametrize("seed", range(8))
def test_with_consumers_of_one_lease_it_plays_like_the_kernel(seed: int) -> None:
    """Costs, weights, quanta, delays, retries and lost consumers at random: the same leases in the same order."""
    chance = random.Random(seed)
    recording = _recording(chance, messages=250, keys=chance.choice([2, 12]), cost_max=chance.choice([1, 60]))
    for scenario in WEIGHTED:
        _play_alike(recording, scenario)


@pytest.mark.parametrize("seed", range(8))
def test_with_consumers_of_several_leases_it_plays_like_the_kernel(seed: int) -> None:
    """Streams and batches, rests, several kinds that come and go: the same leases in the same order."""
    chance = random.Random(seed)
    recording = _recording(chance, messages=250, keys=chance.choice([2, 12]), cost_max=20, settles=True)
    kinds = [[_kind(chance) for _ in range(chance.randint(1, 3))]]
    for scenario in WEIGHTED:
        _play_alike(replace(recording, consumers=kinds, is_plain=False), scenario)


def test_true_costs_wake_keys_that_sleep_as_in_the_kernel() -> None:
    """Of 150 keys that need many rounds to pay, most are woken early by true costs, so that stale entries are swept."""
    chance = random.Random(5)
    recording = _recording(chance, messages=1_500, keys=150, cost_max=3_000, settles=True)
    for scenario in WEIGHTED[:2]:
        _play_alike(recording, scenario)


def test_debts_of_forgotten_keys_are_forgotten_as_in_the_kernel() -> None:
    """Of 1,500 keys that are idle with debts, the kernel remembers 1,024; each of them comes once more."""
    chance = random.Random(6)
    recording = _recording(chance, messages=3_000, keys=1_500, cost_max=4, settles=True)
    _play_alike(recording, AS_IT_WAS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of traffic that the twin can play."""
    folder = tmp_path_factory.mktemp("plain")
    make_journal(folder, PLAIN, config={"weight:work:acme": "2"})
    return folder


def test_it_decides_the_hand_outs_of_a_real_broker_again(folder: Path) -> None:
    """On a broker's journal with retries, expiries and true costs, every hand-out comes out as journalled."""
    recording, steps = record_with_steps(journal_files(folder), ("work",), steps_from=0)
    assert steps is not None
    check = ArrayTwin(recording).check(AS_IT_WAS, steps)
    assert check is not None
    assert (check.is_exact, check.hand_outs) == (True, int((steps.code == LEASE).sum()))
    assert check.hand_outs >= PLAIN.messages
    assert Players(recording, steps, "twin").verdict.hand_outs == check.hand_outs


def test_a_journal_that_it_does_not_reproduce_is_played_by_the_kernel(folder: Path) -> None:
    """Two leased messages change places: the twin finds the first of them, and the kernel plays."""
    recording, steps = record_with_steps(journal_files(folder), ("work",), steps_from=0)
    assert steps is not None
    leases = np.flatnonzero(steps.code == LEASE)
    one, other = next(
        (one, other)
        for one, other in zip(leases[20:-1].tolist(), leases[21:].tolist(), strict=True)
        if recording.key[steps.part[one]] != recording.key[steps.part[other]]
    )
    part = steps.part.copy()
    part[[one, other]] = part[[other, one]]
    players = Players(recording, steps._replace(part=part), "twin")
    assert players.verdict.obstacle == f"the hand-out at sequence {steps.sequence[one]} came out otherwise"
    assert players.play(AS_IT_WAS)[1] == "kernel"


def test_comparisons_are_the_same_with_both_players(folder: Path) -> None:
    """Weights, loads and a cap: all measures are equal, and the twin leaves the cap to the kernel."""
    journal = Journal(folder)
    sweeps = (["weight:acme=1,9"], ["arrivals=x2"], ["consumers=2"], ["service=x0.5"], ["cap:acme=1"])
    scenarios = [one for each in sweeps for one in sweep(AS_IT_WAS, each, journal.queues, journal.policies)]
    twin, kernel = (compare(journal, scenarios, player=player) for player in ("twin", "kernel"))
    assert twin.measures == kernel.measures
    assert (twin.checks, twin.errors) == (kernel.checks, kernel.errors)
    assert [one.player for one in twin.players] == ["twin"] * 6 + ["kernel"]
    assert {one.player for one in kernel.players} == {"kernel"}


def _named(found: Comparison) -> tuple[str, Any]:
    """What the page and the JSON say of who played."""
    line = next(line for line in page_of(found).split("<li>") if line.startswith("Played by"))
    return line.split(".</li>")[0], msgspec.json.decode(msgspec.json.encode(found))


def test_page_and_json_name_the_player(folder: Path) -> None:
    """The page says which player played and that it was checked, and the JSON has it for each scenario."""
    journal = Journal(folder)
    scenarios = sweep(AS_IT_WAS, ["cap:acme=1"], journal.queues, journal.policies)
    told, document = _named(compare(journal, scenarios, player="twin"))
    hand_outs = document["notes"][0]["twin"]["hand_outs"]
    assert told.startswith(f"Played by the array twin, which decided all {hand_outs} hand-outs of the journal")
    assert told.endswith("1 of 2 scenarios by the scheduler&#x27;s kernel")
    assert document["players"] == [
        {"scenario": 0, "queues": ["work"], "player": "twin"},
        {"scenario": 1, "queues": ["work"], "player": "kernel"},
    ]


def test_small_journals_are_played_by_the_kernel(folder: Path) -> None:
    """Without a choice, 400 messages are not worth it; nor is any number, if numba is not installed."""
    told, document = _named(compare(Journal(folder), []))
    assert document["players"] == [{"scenario": 0, "queues": ["work"], "player": "kernel"}]
    reason = document["notes"][0]["twin"]["obstacle"]
    assert reason in (f"fewer than {MESSAGES_MIN:,} messages", "numba is not installed")
    assert told == f"Played by the scheduler&#x27;s kernel ({reason})"


def _cancelled(broker: SteppedBroker) -> None:
    broker.cancel("work", broker.enqueue("work", b"", fairness_key="acme"))


def _paused(broker: SteppedBroker) -> None:
    broker.pause("work")


@pytest.mark.parametrize(
    ("obstacle", "use"),
    [
        ("throttles", lambda broker: broker.enqueue("work", b"", fairness_key="acme", throttles=["api"])),
        ("priorities", lambda broker: broker.enqueue("work", b"", fairness_key="acme", priority="high")),
        ("deadlines", lambda broker: broker.enqueue("work", b"", fairness_key="acme", deadline_ms=5_000)),
        ("weights or caps in messages", lambda broker: broker.enqueue("work", b"", fairness_key="acme", weight=3)),
        ("keys with sub-keys", lambda broker: broker.enqueue("work", b"", fairness_key=("acme", "web"))),
        ("changes or removed messages after the first message", _cancelled),
        ("changes or removed messages after the first message", _paused),
    ],
)
def test_what_holds_messages_back_is_played_by_the_kernel(
    tmp_path: Path, obstacle: str, use: Callable[[SteppedBroker], object]
) -> None:
    """A journal with a feature that the twin does not know is played by the kernel, and the page names the feature."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue_many("work", [NewMessage(fairness_key=key) for key in ("acme", "bakery")])
    broker.advance(10)
    use(broker)
    told, document = _named(compare(Journal(exported(broker, tmp_path)), [], player="twin"))
    assert document["players"][0]["player"] == "kernel"
    assert told == f"Played by the scheduler&#x27;s kernel ({obstacle})"


def test_settings_of_the_journal_that_hold_messages_back_are_left_to_the_kernel(tmp_path: Path) -> None:
    """A queue with a cap for every tenant is played by the kernel, also without a cap in the scenario."""
    broker = stepped_broker()
    broker.create_queue("work", {"key_cap": 1})
    broker.enqueue_many("work", [NewMessage(fairness_key=key) for key in ("acme", "bakery")])
    journal = Journal(exported(broker, tmp_path))
    told, document = _named(compare(journal, [setting_of("key_cap", "none", ["work"])], player="twin"))
    assert [one["player"] for one in document["players"]] == ["kernel", "kernel"]
    assert told == "Played by the scheduler&#x27;s kernel (settings that hold messages back)"


def test_the_beginning_of_a_recording_plays_by_itself() -> None:
    """The first half is a recording with its own attempts: it is played like the whole, where that is not over yet."""
    recording = _recording(random.Random(1), messages=200, keys=5)
    first = beginning(recording, 100)
    assert (len(first.key), len(first.end)) == (100, recording.first[100])
    until_ms = recording.at_ms[100]
    early, whole = (play(each, AS_IT_WAS, messages_of(each)).leased_ms for each in (first, recording))
    assert [at for at in early if 0 <= at < until_ms] == [at for at in whole[:100] if 0 <= at < until_ms]
