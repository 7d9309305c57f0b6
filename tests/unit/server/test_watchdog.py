"""The watchdog: stalls of the event loop are counted with their cause, on an injected clock."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.ports.hooks import EnqueueQuestion
from fairlane.server.watchdog import Watchdog, watching


class Loop:
    """A clock, and the stack that the watchdog finds."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.frame: FrameType | None = None
        self.watchdog = Watchdog(monotonic=lambda: self.now_s, frame=lambda: self.frame)
        self.watchdog.touch()

    def block(self, seconds: float, frame: FrameType | None = None) -> None:
        """Block the loop for a while, during which the watchdog looks once."""
        self.frame = frame
        self.now_s += seconds
        self.watchdog.look()
        self.watchdog.touch()


def hook_frame() -> FrameType:
    """Return the stack inside of a script's config lookup, which runs for a hook of the queue ``slow``."""
    found: list[FrameType] = []

    def config(_queue: str, _key: str) -> None:
        found.append(sys._getframe())

    hooks = LuaHooks(config)
    script = 'function on_enqueue() fairlane.get("k") return {} end'
    hooks.set("slow", on_enqueue=script, on_failure=None)
    hooks.on_enqueue("slow", [EnqueueQuestion({}, 1)], 0)
    return found[0]


def test_a_stall_is_counted_from_50_ms_on() -> None:
    """Shorter ones are nobody's business."""
    loop = Loop()
    for seconds in (0.01, 0.05, 0.049):
        loop.block(seconds)
    assert loop.watchdog.stalls == {}
    loop.block(0.06)
    loop.block(0.5)
    assert loop.watchdog.stalls == {"unknown": 2}
    assert loop.watchdog.stalled_s["unknown"] == pytest.approx(0.56)
    assert loop.watchdog.longest_s == pytest.approx(0.5)


def test_a_stall_has_the_cause_that_the_stack_shows(caplog: pytest.LogCaptureFixture) -> None:
    """A script of a queue: the log names the queue and the place; the metric has the kind only."""
    loop, frame = Loop(), hook_frame()
    with caplog.at_level(logging.WARNING, "fairlane.server"):
        loop.block(0.24, frame)
    assert loop.watchdog.stalls == {"hook": 1}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "The event loop was blocked for 240 ms. Cause: hook of queue 'slow' in fairlane.adapters.lua."
    )


def test_stalls_by_the_same_cause_are_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """All are counted, few are logged, and the next line says how many were not."""
    loop = Loop()
    with caplog.at_level(logging.WARNING, "fairlane.server"):
        for _ in range(50):
            loop.block(0.1)
        assert len(caplog.records) == 1
        loop.block(6.0)
    assert len(caplog.records) == 2
    assert caplog.records[1].getMessage().endswith("The same cause blocked it 49 more times since the last line.")
    assert loop.watchdog.stalls["unknown"] == 51


def test_stalls_during_the_start_are_counted_but_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for a server that starts: the first line of a new server is not a warning."""
    loop = Loop()
    loop.watchdog.is_starting = True
    loop.block(0.5)
    assert loop.watchdog.stalls == {"unknown": 1}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_loop_that_hangs_is_stuck_until_it_goes_on() -> None:
    """That is what the ownership of stores depends on."""
    loop = Loop()
    loop.now_s += 7.0
    assert loop.watchdog.stuck_s() == pytest.approx(7.0)
    loop.watchdog.touch()
    assert loop.watchdog.stuck_s() == 0.0
    assert Watchdog().stuck_s() == 0.0


def test_a_blocked_loop_is_noticed_while_it_is_blocked() -> None:
    """A real loop and the real thread: a callback that blocks until the watchdog has seen it is counted."""

    async def block() -> Watchdog:
        with watching() as watchdog:
            never, deadline_s = threading.Event(), time.monotonic() + 60
            while watchdog._sampled is None and time.monotonic() < deadline_s:
                never.wait(0.001)
            assert watchdog.stuck_s() > 0.05
            counted = asyncio.Event()
            asyncio.get_running_loop().call_later(0.02, counted.set)  # behind the next touch of the mark
            await counted.wait()
        return watchdog

    watchdog = asyncio.run(block())
    assert sum(watchdog.stalls.values()) >= 1
    assert watchdog.longest_s > 0.05
