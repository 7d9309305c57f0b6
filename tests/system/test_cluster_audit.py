"""The cluster auditor finds every violation, and does not report late log lines as faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cluster_audit import Acked, Got, Log, Sent, Throttle, audit

SENT = Sent("q", "a", "0000000000000001", asked=1.0, answered=2.0)
FIRST = Got("q", "a", "0000000000000001", token=5, asked=3.0, seen=4.0, leased_ms=1_000)
AGAIN = replace(FIRST, token=9, asked=6.0, seen=7.0, leased_ms=3_000)
DONE = Acked("q", "0000000000000001", token=9, outcome="done", asked=8.0, answered=9.0)
STALE = replace(DONE, token=5, outcome="refused", asked=10.0, answered=11.0)


def test_a_clean_log_has_no_faults() -> None:
    """A message that is delivered twice, acked once and refused once is correct."""
    found = audit(Log([SENT], [FIRST, AGAIN], [DONE, STALE]))
    assert found.faults == []
    assert found.counts["delivered again"] == 1


def test_a_late_line_is_no_fault() -> None:
    """A delivery logged long after a later one, because its thread or frame was late, is no violation."""
    late = replace(FIRST, asked=3.0, seen=20.0)
    assert audit(Log([SENT], [AGAIN, late], [DONE])).faults == []


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (Log([SENT], [], []), "never came"),
        (Log([SENT], [FIRST], []), "never acked"),
        (Log([SENT], [FIRST], [replace(STALE, token=5)]), "never acked"),
        (Log([SENT], [FIRST, AGAIN], [DONE, replace(DONE, token=5)]), "acked twice"),
        (Log([SENT], [FIRST, AGAIN], [replace(DONE, token=5)]), "stale token"),
        (Log([SENT], [FIRST, replace(AGAIN, token=5)], [replace(DONE, token=5)]), "given for a and again for a"),
        (Log([SENT], [FIRST, replace(AGAIN, token=4)], [replace(DONE, token=5)]), "was asked for after"),
        (Log([SENT], [replace(FIRST, id="0000000000000002")], [DONE]), "enqueued twice"),
        (Log([SENT, replace(SENT, name="b")], [FIRST, AGAIN], [DONE]), "the same id"),
        (
            Log([SENT, replace(SENT, name="b", id="0000000000000000", asked=3.0)], [FIRST, AGAIN], [DONE]),
            "id in q~0: 0 was asked for after 1",
        ),
    ],
)
def test_faults_are_found(log: Log, fault: str) -> None:
    """Each broken promise is named."""
    assert fault in " ".join(audit(log).faults)


def test_an_ack_without_an_answer_may_have_been_done() -> None:
    """A message whose only ack got no answer is not lost."""
    assert audit(Log([SENT], [FIRST, AGAIN], [replace(DONE, outcome="unknown")])).faults == []


@pytest.mark.parametrize(("count", "faults"), [(15, 0), (25, 1)])
def test_a_throttle_that_lets_too_many_go_is_found(count: int, faults: int) -> None:
    """In half a second a throttle with rate 10 and burst 10 lets fifteen messages go, not twenty-five."""
    got = [replace(FIRST, token=at, leased_ms=1_000 + 500 * at // count, throttle="t") for at in range(count)]
    found = audit(Log([], got, []), throttles={"t": Throttle(10, 10)}, is_drained=False)
    assert len([fault for fault in found.faults if "throttle" in fault]) == faults
