"""A recording as arrays, played by the array twin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairlane.model.message import Key
from fairlane.spark.whatif.attempts import EXPIRED
from fairlane.spark.whatif.messages import Played
from fairlane.spark.whatif.presence import total_of
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.rows import NEVER, Ints, column_of
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.twin.fleets import consumers_of, fleet_of, play_fleet
from fairlane.spark.whatif.twin.replay import TwinCheck, check
from fairlane.spark.whatif.twin.slots import play_slots
from fairlane.spark.whatif.twin.steps import JournalSteps
from fairlane.spark.whatif.twin.support import shares_of
from fairlane.spark.whatif.twin.turns import Turns, turns_of
from fairlane.spark.whatif.twin.work import LEASED, Work, leases_of, run_of


class ArrayTwin:
    """Plays one recording, which must have no obstacle; see ``obstacle_in``."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        known: dict[Key, int] = {}
        codes = [known.setdefault(key, len(known)) for key in recording.key]
        self._key: NDArray[np.int32] = np.array(codes, dtype=np.int32)
        self._cost = _ints(recording.cost)
        self._keys = list(known)
        self._work = _work_of(recording)

    def check(self, scenario: Scenario, steps: JournalSteps) -> TwinCheck | None:
        """Decide the journal's hand-outs again; None if the settings need the kernel."""
        turns = self._turns(scenario)
        return None if turns is None else check(turns, steps)

    def play(self, scenario: Scenario) -> Played | None:
        """Play the recording under a scenario; None if its settings need the kernel."""
        turns = self._turns(scenario)
        if turns is None:
            return None
        work, (kinds,) = self._work, self._recording.consumers
        leases = leases_of(work)
        run = run_of(work, leases=leases, consumers=consumers_of(kinds))
        if self._recording.is_plain:
            slots = np.array(total_of([kind.counts for kind in kinds]), dtype=np.int64).reshape(-1, 2)
            play_slots(turns, work, run, np.zeros(3, dtype=np.int64), slots)
        else:
            play_fleet(turns, work, run, fleet_of(kinds, leases=leases))
        leased = int(run.counts[LEASED])
        contended = run.leased[:leased][run.is_contended[:leased]].astype(np.int64)
        return Played(
            leased_ms=column_of(run.first_ms),
            throttled_ms={},
            capped_ms={},
            paused_ms={},
            contended=column_of(contended),
            missed=[],
            removed=[],
        )

    def _turns(self, scenario: Scenario) -> Turns | None:
        shares = shares_of(self._recording, scenario, self._keys)
        return None if shares is None else turns_of(self._key, self._cost, shares)


def _work_of(recording: Recording) -> Work:
    end: NDArray[np.int8] = np.array(recording.end, dtype=np.int8)
    busy_ms, hold_ms = _ints(recording.busy_ms), _ints(recording.hold_ms)
    due_ms = np.full(len(recording.at_ms), NEVER, dtype=np.int64)
    if recording.is_timed:
        due_ms[:] = [NEVER if at_ms is None else at_ms for at_ms in recording.due_ms]
    return Work(
        at_ms=_ints(recording.at_ms),
        due_ms=due_ms,
        first=_ints(recording.first),
        lasts_ms=np.where(end < EXPIRED, busy_ms, hold_ms),
        busy_ms=busy_ms,
        end=end,
        delay_ms=_ints(recording.delay_ms),
        settle=_ints(recording.settle),
        is_timed=recording.is_timed,
    )


def _ints(column: Sequence[int]) -> Ints:
    """Return a column as an array; one of the standard library's is not copied."""
    return np.asarray(column, dtype=np.int64)
