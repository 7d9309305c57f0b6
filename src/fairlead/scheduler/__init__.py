"""Fair picking as a library that stands alone: who is next, and whether it may go.

``Kernel`` is the scheduler itself: pure, for those who bring their own loop.
"""

from fairlead.scheduler.buckets import Throttles
from fairlead.scheduler.explanation import Explanation, WaitReason
from fairlead.scheduler.item import Item, Key, Priority
from fairlead.scheduler.kernel import Kernel
from fairlead.scheduler.policy import Backpressure, Departure, DepartureReason, KeyPolicy, Refusal, RefusalReason

__all__ = [
    "Backpressure",
    "Departure",
    "DepartureReason",
    "Explanation",
    "Item",
    "Kernel",
    "Key",
    "KeyPolicy",
    "Priority",
    "Refusal",
    "RefusalReason",
    "Throttles",
    "WaitReason",
]
