"""A broker under load on the log whose process is suspended, or whose clock is set an hour forward or back."""

from __future__ import annotations

import json
from pathlib import Path

from .broker_lives import Lives, LoadedBroker, audit_what_is_left, time_faults
from .wrong_clock import BACK, FORWARD, HOUR_MS

STOPS_A_LIFE, LIVES = 5, 4
STOPS_S = (0.1, 0.5, 1.0, 1.6, 0.1)
"""Leases of the load end after 0.06, 0.4 and 1.5 s, and some last for a minute."""
JUMPS = 5


def test_a_broker_that_is_suspended_keeps_its_word(tmp_path: Path) -> None:
    """Twenty times it is stopped under load and goes on: leases that ended meanwhile are stale, the others good, and
    nothing is lost, undone or handed out twice."""
    lives = Lives(tmp_path, seed=11, store=f"log:{tmp_path / 'store'}")

    def stop_and_go(broker: LoadedBroker) -> None:
        for seconds in STOPS_S:
            broker.suspend(seconds)
            broker.goes_on()

    for _ in range(LIVES):
        lives.live(meanwhile=stop_and_go)
    remains = audit_what_is_left(lives)
    counts = lives.auditor.counts
    print(f"\n{LIVES * STOPS_A_LIFE} stops under load")
    print("\n".join(f"{count:6} {what}" for what, count in counts.most_common()))
    print(f"{remains:6} drained at the end")
    assert len(STOPS_S) == STOPS_A_LIFE
    assert counts["acked"] > 40 * LIVES * STOPS_A_LIFE
    assert counts["re-deliveries"] > LIVES * STOPS_A_LIFE


def test_a_broker_whose_clock_jumps_keeps_its_word(tmp_path: Path) -> None:
    """Five times its clock jumps by an hour under load, and is set right, or still wrong when it is killed: no lease,
    delay or dedup id ends by that, and nothing is lost, undone or handed out twice."""
    lives = Lives(tmp_path, seed=12, store=f"log:{tmp_path / 'store'}")

    def jump(broker: LoadedBroker, *, there: int, back: int | None) -> None:
        for number in (there, back):
            if number is not None:
                broker.signal(number)
                broker.goes_on()

    for count in range(JUMPS):
        there, back = (FORWARD, BACK) if count % 2 else (BACK, FORWARD)
        is_set_right = count < 3
        lives.live(meanwhile=lambda broker: jump(broker, there=there, back=back if is_set_right else None))  # noqa: B023
    remains = audit_what_is_left(lives)
    counts = lives.auditor.counts
    print(f"\n{JUMPS} jumps by an hour under load")
    print("\n".join(f"{count:6} {what}" for what, count in counts.most_common()))
    print(f"{remains:6} drained at the end")
    assert min(lives.wrong_ms) > HOUR_MS * 9 // 10
    assert counts["acked"] > 40 * JUMPS


def test_time_that_jumps_is_noticed() -> None:
    """A broker that followed its clock by an hour would be found out by its log."""
    lines = [{"ms": 5_000, "since": 10, "until": 12}, {"ms": 5_900, "since": 1_011, "until": 1_013}]
    assert time_faults([json.dumps(line).encode() for line in lines]) == []
    lines[1]["ms"] += HOUR_MS
    assert len(time_faults([json.dumps(line).encode() for line in lines])) == 1
