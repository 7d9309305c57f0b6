"""The statistics of a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """The statistics of a gate at one instant.

    Each request that has arrived either waits or is counted in exactly one of ``granted``, ``refused`` and
    ``disconnected``.

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
