"""What a gate counts: requests, and how long they waited, in total and by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from fairlane.errors import FairlaneError
from fairlane.scheduler import DepartureReason, Key, Statistics
from fairlane.scheduler.statistics import Happening, Tallies

_MS_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats(Statistics):
    """The statistics of a gate at one instant.

    Each request that has arrived either waits or is counted in exactly one of ``granted``, ``refused`` and
    ``disconnected``.

    ``total``, ``keys`` and ``top_keys`` count requests as those of a scheduler count tasks: a request is handed out
    when its application is called, and cancelled when its client leaves before. Waits are whole milliseconds. ``cost``
    is that of finished requests, as the application reported it or else as it was estimated.

    Attributes:
        in_flight: slots in use.
        in_flight_max: the number of slots.
        waiting: requests that wait for a slot.
        granted: requests for which the application was called.
        finished: granted requests whose application has ended, successfully or not.
        refused: requests answered with an error, by error code.
        disconnected: requests whose client left, or that the server cancelled, before their turn.
    """

    in_flight: int
    in_flight_max: int
    waiting: int
    granted: int
    finished: int
    refused: Mapping[str, int]
    disconnected: int


class GateTally:
    """The growing counts of a gate. A lock guards them, because other threads may take snapshots."""

    def __init__(self, *, keys_max: int) -> None:
        self._lock = Lock()
        self._tallies = Tallies(keys_max)
        self._refused: Counter[str] = Counter()
        self._granted = self._finished = self._disconnected = 0

    def count_entered(self, key: Key) -> None:
        """Count a request that entered the queue."""
        with self._lock:
            self._tallies.count(key, Happening.ENQUEUED)

    def count_rejected(self, key: Key) -> None:
        """Count a request that met a limit."""
        with self._lock:
            self._tallies.count(key, Happening.REJECTED)

    def count_departed(self, key: Key, reason: DepartureReason) -> None:
        """Count a request that expired or was dropped while it waited."""
        with self._lock:
            self._tallies.count(key, Happening.EXPIRED if reason is DepartureReason.EXPIRED else Happening.DROPPED)

    def count_granted(self, key: Key, waited_ms: int) -> None:
        """Count a request whose application is about to be called."""
        with self._lock:
            self._granted += 1
            self._tallies.count_dequeued(key, waited_ms * _MS_NS, cost=0)  # the cost counts once it is known

    def count_finished(self, key: Key, cost: int) -> None:
        """Count a request whose application has ended."""
        with self._lock:
            self._finished += 1
            self._tallies.count_cost(key, cost)

    def count_disconnected(self, key: Key, *, has_departed: bool) -> None:
        """Count a request whose client left before its turn, perhaps just after the request had departed."""
        with self._lock:
            self._disconnected += 1
            if not has_departed:
                self._tallies.count(key, Happening.CANCELLED)

    def count_refused(self, error: FairlaneError) -> None:
        """Count a request that was answered with an error."""
        with self._lock:
            self._refused[error.code] += 1

    def snapshot(self, *, in_flight: int, in_flight_max: int, waiting: int, waiting_max: int | None) -> GateStats:
        """Return the current counts, together with the present state of the gate."""
        with self._lock:
            counted = self._tallies.snapshot(waiting_max)
            return GateStats(
                total=counted.total,
                keys=counted.keys,
                waiting_max=waiting_max,
                in_flight=in_flight,
                in_flight_max=in_flight_max,
                waiting=waiting,
                granted=self._granted,
                finished=self._finished,
                refused=dict(self._refused),
                disconnected=self._disconnected,
            )
