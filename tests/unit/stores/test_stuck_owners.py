"""Heartbeats of an owner stop while its process hangs."""

from __future__ import annotations

import pytest

from fairlane.adapters.shared.ownership import OwnerProcess, Ownership


@pytest.mark.parametrize(("stuck_s", "is_stuck"), [(0.0, False), (0.99, False), (1.0, True), (60.0, True)])
def test_a_process_is_stuck_after_the_time_between_two_heartbeats(stuck_s: float, is_stuck: bool) -> None:
    """Three heartbeats fit into the timeout, so the first that is due and finds no progress is not sent."""
    ownership = Ownership(heartbeat_timeout_ms=3_000, process=OwnerProcess(stuck_s=lambda: stuck_s))
    assert ownership.is_stuck is is_stuck


def test_a_process_without_a_loop_is_never_stuck() -> None:
    """A broker for threads, or in a test, keeps its store as before."""
    assert not Ownership().is_stuck
