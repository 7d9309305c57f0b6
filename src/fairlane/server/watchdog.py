"""The watchdog: notices when the event loop is blocked, for how long, and by what.

Theory of operation
-------------------
A server does everything on one event loop, so a callback that takes long delays everyone. The loop touches a mark every
10 ms. A thread looks at the mark, and if it was not touched for 50 ms, samples the stack of the loop's thread. When
the loop touches the mark again it knows how long it was blocked, and the sample shows by what.

That costs a timer a hundred times a second and a thread that wakes up forty times a second, and nothing per request.
If a call into C blocks the thread as well, because it holds Python's lock, the thread gets its turn when the call
returns, and finds the function that made the call.

The mark also shows whether the process makes progress at all: a node of a cluster renews the ownership of its stores
only while it does, so the queues of a node that hangs are taken over.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STALL_S: Final = 0.05
"""From this on a stall is counted. The mark is touched every 10 ms, so a stall is measured as up to 10 ms longer."""
_TOUCH_S: Final = 0.01
_LOOK_S: Final = 0.025
_LOG_EVERY_S: Final = 10.0
_UNKNOWN: Final = "unknown"
_CAUSES: Final = (
    ("fairlane.adapters.lua", "hook"),
    ("fairlane.adapters", "store"),
    ("fairlane.core", "decide"),
    ("fairlane.scheduler", "decide"),
    ("fairlane.broker", "engine"),
    ("fairlane.journal", "engine"),
    ("fairlane.server.interfaces", "interface"),
    ("fairlane.wire", "interface"),
    ("fairlane.server.metrics", "observer"),
    ("fairlane.server.live", "observer"),
    ("fairlane.server.routes", "observer"),
    ("fairlane.cluster", "cluster"),
    ("fairlane", "other"),
)
"""What a stall counts as, by the module of the innermost function of ours; the first that fits."""
CAUSES: Final = (*sorted({cause for _, cause in _CAUSES}), _UNKNOWN)
"""Everything that a stall can count as."""
_log = logging.getLogger("fairlane.server")


class Watchdog:
    """Counts the stalls of one event loop. See the module's theory of operation.

    Attributes:
        stalls: how many there were, by cause.
        stalled_s: how long they took together, by cause.
        longest_s: how long the longest took.
        is_starting: whether the server has no callers yet, whom a stall could delay; then stalls are logged as debug.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, frame: Callable[[], FrameType | None] | None = None
    ) -> None:
        """Create a watchdog that is not running yet; see ``watching``.

        Args:
            monotonic: the clock.
            frame: returns the innermost frame of the thread that created this watchdog.
        """
        self._monotonic = monotonic
        thread = threading.get_ident()
        self._frame = frame if frame is not None else lambda: sys._current_frames().get(thread)
        self._touched_s: float | None = None
        self._sampled: tuple[float, str, str] | None = None
        self._logged_s: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.stalled_s: defaultdict[str, float] = defaultdict(float)
        self.longest_s = 0.0
        self.is_starting = False

    def stuck_s(self) -> float:
        """Return for how long the loop has not made progress; 0 if it is not watched."""
        touched_s = self._touched_s
        return 0.0 if touched_s is None else self._monotonic() - touched_s

    def touch(self) -> None:
        """Note that the loop makes progress. Called on the loop."""
        now_s, before_s = self._monotonic(), self._touched_s
        self._touched_s = now_s
        if before_s is not None and now_s - before_s > STALL_S:
            self._count(now_s - before_s, before_s, now_s)

    def look(self) -> None:
        """Look whether the loop is blocked, and by what. Called in a thread."""
        touched_s, sampled = self._touched_s, self._sampled
        if touched_s is None or self._monotonic() - touched_s <= STALL_S:
            return
        if sampled is None or sampled[0] != touched_s:  # one sample for each stall
            self._sampled = (touched_s, *_cause_of(self._frame()))

    def _count(self, took_s: float, before_s: float, now_s: float) -> None:
        sampled, cause, where = self._sampled, _UNKNOWN, ""
        if sampled is not None and sampled[0] == before_s:
            _, cause, where = sampled
        self.stalls[cause] += 1
        self.stalled_s[cause] += took_s
        self.longest_s = max(self.longest_s, took_s)
        if now_s - self._logged_s.get(cause, -_LOG_EVERY_S) < _LOG_EVERY_S:
            self._unlogged[cause] += 1
            return
        self._logged_s[cause] = now_s
        more = self._unlogged.pop(cause, 0)
        _log.log(
            logging.DEBUG if self.is_starting else logging.WARNING,
            "The event loop was blocked for %.0f ms. Cause: %s%s.%s",
            took_s * 1_000,
            cause,
            where,
            f" The same cause blocked it {more} more times since the last line." if more else "",
        )


def _cause_of(innermost: FrameType | None) -> tuple[str, str]:
    """Return the cause that a stack shows, and where that is, with the queue if a function has one."""
    found, queue = None, None
    frame = innermost
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("fairlane"):
            found = found or (name, frame)
            queue = queue or frame.f_locals.get("queue")
        frame = frame.f_back
    if found is None:
        return _UNKNOWN, ""
    module, frame = found
    cause = next((cause for prefix, cause in _CAUSES if module == prefix or module.startswith(prefix + ".")), "other")
    of_queue = f" of queue {queue!r:.150}" if isinstance(queue, str) else ""
    return cause, f"{of_queue} in {module}.{frame.f_code.co_name}, line {frame.f_lineno}"


@contextmanager
def watching() -> Iterator[Watchdog]:
    """Watch the running event loop while the context lasts."""
    loop, watchdog, is_over = asyncio.get_running_loop(), Watchdog(), threading.Event()
    timer: asyncio.TimerHandle | None = None

    def beat() -> None:
        nonlocal timer
        watchdog.touch()
        timer = loop.call_later(_TOUCH_S, beat)

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            watchdog.look()

    beat()
    thread = threading.Thread(target=look, name="fairlane-watchdog", daemon=True)
    thread.start()
    try:
        yield watchdog
    finally:
        is_over.set()
        if timer is not None:
            timer.cancel()
        thread.join()
