"""The keys of one queue as all who watch it see them: looked at together, and so seldom that it costs little."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final

import msgspec

from fairlane.cluster.groups import Looking
from fairlane.model.message import Key
from fairlane.model.views import KeyView
from fairlane.server.live.snapshot import CONSIDERED_MAX, KeysNow, Looked, is_like, keys_now, looked_at
from fairlane.server.live.windows import KeyWindows

SPARE: Final = 250
"""Keys are looked at so seldom that the server has so many times as long for everything else."""
_NEVER: Final = float("inf")


class KeyWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys a viewer wants to see, and how many."""

    keys_max: int
    match: str = ""


class KeyBoard:
    """What is known of the keys of a queue. One look serves all viewers, and one picture all who wish for the same."""

    def __init__(
        self, broker: Looking, queue: str, windows: KeyWindows, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._windows = windows
        self._clock = clock
        self._looked: Looked | None = None
        self._edition = 0
        self._due_at = 0.0
        self._pictures: dict[KeyWish, KeysNow] = {}

    async def shown(self, wish: KeyWish, *, seen: int) -> tuple[int, KeysNow | None]:
        """Return the edition that is out now, with its picture unless it is the one that was seen.

        Raises:
            QueueNotFound: the queue is gone.
        """
        if self._clock() >= self._due_at:
            await self._look()
        looked, edition = self._looked, self._edition
        if looked is None or edition == seen:
            return seen, None
        picture = self._pictures.get(wish)
        if picture is None:
            others = await self._matching(wish) if wish.match else ()
            begun = thread_time()
            picture = keys_now(looked, self._windows, keys_max=wish.keys_max, match=wish.match, others=others)
            if edition == self._edition:
                self._pictures[wish] = picture
            self._due_at += SPARE * (thread_time() - begun)
        return edition, picture

    async def _look(self) -> None:
        cost_s = 0.0
        self._due_at = _NEVER  # somebody looks already
        try:
            view, cost_s = await self._broker.look_at(self._queue, keys_max=CONSIDERED_MAX)
            begun = thread_time()
            now_ms = self._broker.now_ms()
            self._windows.roll(now_ms)
            self._looked = looked_at(view, self._windows, self._weight_of, now_ms)
            self._edition += 1
            self._pictures = {}
            cost_s += thread_time() - begun
        finally:
            self._due_at = self._clock() + SPARE * cost_s

    def _weight_of(self, key: Key) -> int:
        return self._broker.weight_of(self._queue, key)

    async def _matching(self, wish: KeyWish) -> tuple[KeyView, ...]:
        """Return the keys that are looked for, where they are not among those with the most messages."""

        def is_wanted(key: Key) -> bool:
            return is_like(key, wish.match)

        view, cost_s = await self._broker.look_at(self._queue, keys_max=wish.keys_max, wanted=is_wanted)
        self._due_at += SPARE * cost_s
        return view.keys
