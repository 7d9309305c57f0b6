"""What-if with many keys: the work for a message does not depend on how many keys there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from fairlane.model.message import NewMessage
from fairlane.spark.whatif.files import journal_files
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.measures import ALL_KEYS, KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from tests.spark.whatif_journals import exported, stepped_broker

MESSAGES = 240


def _numpy_calls(work: Callable[[], object]) -> int:
    """Return how many functions of numpy some work calls, those that numpy calls itself included."""
    calls = 0

    def note(frame: FrameType, event: str, called: object) -> None:
        nonlocal calls
        if event == "call":
            calls += "numpy" in frame.f_code.co_filename
        elif event == "c_call":
            calls += isinstance(getattr(called, "__self__", None), np.ndarray)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def _journal(folder: Path, *, keys: int) -> list[Path]:
    """The journal of a queue whose messages have so many keys, half of them worked on for 10 ms and half for 30."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue_many("work", [NewMessage(fairness_key=f"k{at % keys}") for at in range(MESSAGES)])
    for at in range(MESSAGES - keys):
        (delivery,) = broker.lease("work")
        broker.advance(10 + at % 2 * 20)
        broker.ack(delivery)
    return journal_files(exported(broker, folder))


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Path]]:
    """The same messages, of three keys and of sixty."""
    return {keys: _journal(tmp_path_factory.mktemp(f"keys-{keys}"), keys=keys) for keys in (3, 60)}


def test_recording_takes_as_many_array_operations_for_many_keys_as_for_few(journals: dict[int, list[Path]]) -> None:
    """Twenty times the keys take no more operations on arrays: there is none for each key, which would be quadratic."""
    few, many = (_numpy_calls(partial(record, files, ("work",))) for files in journals.values())
    assert many <= few * 1.2


def test_measuring_takes_as_many_array_operations_for_many_keys_as_for_few(journals: dict[int, list[Path]]) -> None:
    """Twenty times the keys take no more operations on arrays to measure a run and the journal itself."""

    def measuring(files: list[Path]) -> Callable[[], object]:
        recording = record(files, ("work",))
        played = play(recording, Scenario(name=ORIGINAL), messages_of(recording))
        yardstick = Yardstick(recording, MeasuredPeriod())
        return lambda: [*yardstick.measure(0, played), *yardstick.journalled()]

    few, many = (_numpy_calls(measuring(files)) for files in journals.values())
    assert many <= few * 1.2


def test_an_unfinished_attempt_gets_the_median_of_its_own_key(journals: dict[int, list[Path]]) -> None:
    """The last message of each key was never leased; it gets the median of its key's attempts, computed by hand."""
    recording = record(journals[3], ("work",))
    for key in ("k0", "k1", "k2"):
        of_key = [at for at in range(MESSAGES) if recording.key[at] == key]
        held = [recording.hold_ms[recording.first[at]] for at in of_key if recording.leased_ms[at] >= 0]
        left = [recording.hold_ms[recording.first[at]] for at in of_key if recording.leased_ms[at] < 0]
        assert left == [int(np.median(held))] * len(left)
        assert left


def _by_hand(recording: Recording, key: str | None) -> tuple[int, int, int, int, int, float]:
    waits = sorted(
        int(leased_ms) - at_ms
        for leased_ms, at_ms, each in zip(recording.leased_ms, recording.at_ms, recording.key, strict=True)
        if leased_ms >= 0 and key in (None, each)
    )
    at_99 = -(-99 * len(waits) // 100) - 1
    messages = sum(key in (None, each) for each in recording.key)
    return messages, len(waits), waits[(len(waits) + 1) // 2 - 1], waits[at_99], waits[-1], sum(waits) / len(waits)


def _told(one: KeyMeasures) -> tuple[int, int, int, int, int, float]:
    return one.messages, one.leased, one.wait_p50_ms, one.wait_p99_ms, one.wait_max_ms, one.wait_mean_ms


def test_each_key_is_measured_as_if_it_were_alone(journals: dict[int, list[Path]]) -> None:
    """Counts, percentiles and means of every key, and of all together, are those of a loop over its messages."""
    recording = record(journals[60], ("work",))
    found = {one.key: one for one in Yardstick(recording, MeasuredPeriod()).journalled()}
    assert len(found) == 61
    assert _told(found[ALL_KEYS]) == _by_hand(recording, None)
    for key in sorted(set(map(str, recording.key))):
        assert _told(found[key]) == _by_hand(recording, key)


def test_a_queue_without_measured_messages_has_a_row(journals: dict[int, list[Path]]) -> None:
    """A period before the first message measures nothing, and says so instead of failing."""
    recording = record(journals[3], ("work",))
    (only,) = Yardstick(recording, MeasuredPeriod(to_ms=0)).journalled()
    assert (only.key, only.messages, only.leased, only.wait_p99_ms, only.share) == (ALL_KEYS, 0, 0, 0, 0.0)
