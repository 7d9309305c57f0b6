"""Victims in the live view: who got less than its share while another got more, and who is never named."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy
from fairlane.model.views import KeyView
from fairlane.server.live.snapshot import sample_queue
from fairlane.server.live.windows import KeyWindows
from tests.unit.server.test_noise_oracle import view_of

POOR = KeyView(key="poor", messages=500, leased=0, weight=1, cap=None, deficit=0, is_paused=False, may_go=True)
GREEDY = replace(POOR, key="greedy")


def named(poor: list[KeyView], *, policy: QueuePolicy | None = None) -> list[list[str]]:
    """Return the victims of each window after a second for each view, with greedy served four times as often."""
    windows = KeyWindows(0, random=Random(0))
    keys: list[Key] = ["greedy", "greedy", "greedy", "greedy", "poor"]
    for second, view in enumerate(poor, 1):
        windows.serve(keys, [1] * 5)
        windows.roll(second * 1_000)
        queue = replace(view_of([GREEDY, view]), policy=policy or QueuePolicy())
        sample = sample_queue(queue, windows, lambda _: 1, second * 1_000)
    return [[str(victim.key) for victim in window.victims] for window in sample.windows]


def test_a_key_that_gets_less_than_its_share_is_a_victim() -> None:
    """Both wait all the time, and one has a fifth of the service instead of half."""
    assert named([POOR] * 60) == [["poor"]] * 3


def test_nobody_is_a_victim_within_the_first_seconds() -> None:
    """The first five seconds of a window name nobody."""
    assert named([POOR] * 4) == [[]] * 3


def test_a_key_that_came_late_is_no_victim_of_the_time_before() -> None:
    """It has waited for 20 seconds, so only the window of ten seconds can say that it got too little."""
    away = replace(POOR, may_go=False)
    assert named([away] * 40 + [POOR] * 20) == [["poor"], [], []]


@pytest.mark.parametrize(
    "held",
    [
        replace(POOR, may_go=False),
        replace(POOR, throttle="smtp"),
        replace(POOR, cap=1, leased=1),
        replace(POOR, is_paused=True),
    ],
    ids=["delayed", "throttled", "capped", "paused"],
)
def test_a_key_that_is_held_back_is_no_victim(held: KeyView) -> None:
    """What a delay, throttle, cap or pause holds back waits for no turn."""
    assert named([held] * 60) == [[]] * 3


def test_priorities_make_no_victims() -> None:
    """Where the higher priority goes first across keys, turns are not by weight."""
    assert named([POOR] * 60, policy=QueuePolicy(strict_priority=True)) == [[]] * 3


def test_less_than_a_message_is_no_lack() -> None:
    """With three large messages in a window nobody can be served exactly its share."""
    windows = KeyWindows(0, random=Random(0))
    served: list[Key] = ["greedy", "poor", "greedy"]
    for second, key in enumerate([*served, *[None] * 7], 1):
        windows.serve([] if key is None else [key], [] if key is None else [100])
        windows.roll(second * 1_000)
        sample = sample_queue(view_of([GREEDY, POOR]), windows, lambda _: 1, second * 1_000)
    assert [window.victims for window in sample.windows] == [[]] * 3
