"""Whoever is reported as ended has been in doubt about itself before, however late looks are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.adapters.shared.attendance import Attendance

GRACE_S = 4
delays = st.integers(0, 6)
looks = st.lists(st.tuples(delays, delays, delays), max_size=12)


def timeline(steps: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the looks of a process as instants: sent, seen by the server, answered."""
    instants, now_s = [], 0
    for pause_s, there_s, back_s in steps:
        sent_s = now_s + pause_s
        instants.append((sent_s, sent_s + there_s, sent_s + there_s + back_s))
        now_s = instants[-1][2] + 1
    return instants


@given(own=looks, others=looks, ends_s=st.integers(0, 60))
def test_a_process_that_is_reported_is_in_doubt(
    own: list[tuple[int, int, int]], others: list[tuple[int, int, int]], ends_s: int
) -> None:
    """A process that lost its session is in doubt at every instant from which on another reports it."""
    watched, watcher = Attendance[str](grace_s=GRACE_S), Attendance[str](grace_s=GRACE_S)
    watched.expect("a")
    watched.show(sent_s=0)
    watcher.connected()
    events = [(answered_s, watched, sent_s, seen_s) for sent_s, seen_s, answered_s in timeline(own)]
    events += [(answered_s, watcher, sent_s, seen_s) for sent_s, seen_s, answered_s in timeline(others)]
    for answered_s, process, sent_s, seen_s in sorted(events, key=lambda event: event[0]):
        present = {"a"} if seen_s < ends_s else set[str]()
        if process is watcher or present:  # a process that misses its own session knows better than to go on
            process.note(present, sent_s=sent_s, answered_s=answered_s)
        assert not (watcher.ended and watched.is_certain(answered_s))
