"""A standalone fair scheduler: it decides which item goes next and whether it may go now.

``Scheduler`` is the front end for threads, ``AsyncScheduler`` the one for asyncio. ``Kernel`` is the pure scheduler
underneath, for programs that bring their own clock and loop.
"""

from fairlane.scheduler.aio import AsyncScheduler
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.explanation import Explanation, WaitReason
from fairlane.scheduler.frontend import Options, TaskOptions
from fairlane.scheduler.item import Item, ItemTerms, Key, Priority
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.policy import Backpressure, Departure, DepartureReason, KeyPolicy, Refusal, RefusalReason
from fairlane.scheduler.statistics import KeyCounts, Statistics, WaitTimes
from fairlane.scheduler.tasks import Task
from fairlane.scheduler.threads import Scheduler
from fairlane.scheduler.token_bucket import Limit

__all__ = [
    "AsyncScheduler",
    "Backpressure",
    "Departure",
    "DepartureReason",
    "Explanation",
    "Item",
    "ItemTerms",
    "Kernel",
    "Key",
    "KeyCounts",
    "KeyPolicy",
    "Limit",
    "Options",
    "Priority",
    "Refusal",
    "RefusalReason",
    "Scheduler",
    "Statistics",
    "Task",
    "TaskOptions",
    "Throttles",
    "WaitReason",
    "WaitTimes",
]
