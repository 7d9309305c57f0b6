"""Which nodes live: a node is alive while its entry on the board keeps changing, by the clock of the node that watches.

No clock is compared with another machine's. A node that has just started to watch considers every other node alive for
one heartbeat timeout. So does a node that could not read the board for a while, because others may not have been able
to write to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.cluster.entries import NodeEntry


class Liveness:
    """What one node has seen of the heartbeats of all nodes."""

    def __init__(self, heartbeat_timeout_ms: int) -> None:
        """Start to watch. A node whose entry has not changed for ``heartbeat_timeout_ms`` is dead."""
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._seen: dict[str, tuple[tuple[str, int], int]] = {}
        self._noted_ms: int | None = None

    def note(self, nodes: Mapping[str, NodeEntry], now_ms: int) -> None:
        """Take the nodes of a board; ``now_ms`` is the instant before it was read, by a clock that only grows.

        The instant *before* the reading, because the entries are at least as new as that.
        """
        beats = {name: (entry.incarnation, entry.beat) for name, entry in nodes.items()}
        for name in self._seen.keys() - beats.keys():
            del self._seen[name]
        if self._noted_ms is not None and now_ms - self._noted_ms > self._heartbeat_timeout_ms // 2:
            self._seen.clear()  # after a gap, silence may be ours: everyone gets another timeout
        self._noted_ms = now_ms if self._noted_ms is None else max(self._noted_ms, now_ms)
        for name, beat in beats.items():
            if name not in self._seen or self._seen[name][0] != beat:
                self._seen[name] = (beat, now_ms)

    def live(self, now_ms: int) -> frozenset[str]:
        """Return the nodes that live."""
        return frozenset(
            name for name, (_, seen_ms) in self._seen.items() if now_ms - seen_ms < self._heartbeat_timeout_ms
        )

    def silent_ms(self, node: str, now_ms: int) -> int | None:
        """Return for how long a node has sent no heartbeat; None if it is not on the board."""
        seen = self._seen.get(node)
        return None if seen is None else now_ms - seen[1]
