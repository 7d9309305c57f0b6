"""The phases of an event loop that runs an engine."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where the loop is in the engine's cycle. Each leads to the next; ``SYNCING`` only where the disk is slow.

    A request that comes while a cycle is under way is taken by the next one, which the end of this one schedules.
    """

    IDLE = "nothing is to be done, or only later"
    SCHEDULED = "a cycle begins in the next pass of the loop"
    RUNNING = "the engine decides and writes"
    SYNCING = "a thread syncs; the loop does other things"
    ANSWERING = "the engine answers and delivers"
