"""How a gate stands, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """How a gate stands at one instant.

    Of the requests that have arrived, each one waits or is in exactly one of ``granted``, ``refused`` and
    ``disconnected``.

    Attributes:
        in_flight: slots taken now.
        in_flight_max: slots there are.
        waiting: requests that wait for one.
        granted: requests the application was called for.
        finished: those of them it is done with, well or not.
        refused: requests answered with an error, by its code.
        disconnected: requests whose client left, or whose server gave up, before their turn.
    """

    in_flight: int
    in_flight_max: int
    waiting: int
    granted: int
    finished: int
    refused: Mapping[str, int]
    disconnected: int
