"""Kernels as the policies of queues ask for them."""

from __future__ import annotations

from typing import TypeVar

from fairlane.core.key_policies import KeyPolicies
from fairlane.core.ledger import Group, Queue, ScheduledItem
from fairlane.model.names import is_dlq
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.policy import StrictOrder

ItemT = TypeVar("ItemT", bound=ScheduledItem)


def kernel_of(queue: Queue, throttles: Throttles, policies: KeyPolicies) -> Kernel[ItemT]:
    """Create the kernel of a queue, as its policy asks for it."""
    # Dead letters have paid for their tokens once. An operator who looks through them should not wait for others.
    table = Throttles() if is_dlq(queue.name) else throttles
    policy = queue.policy
    kernel: Kernel[ItemT] = Kernel(
        quantum=policy.quantum,
        strict_priority=policy.strict_priority,
        counts_use=True,
        throttles=table,
        name=queue.name,
        order=_order(queue) if queue.is_strict else None,
    )
    kernel.set_policy_provider(policies.of)
    kernel.set_in_use_max(policy.in_flight_max)
    for key in queue.paused_keys:
        kernel.pause(key)
    return kernel


def made_with(queue: Queue) -> tuple[object, ...]:
    """Return what a kernel is made with and can't change."""
    policy = queue.policy
    return policy.quantum, policy.strict_priority, queue.is_strict, policy.order_batch_max


def _order(queue: Queue) -> StrictOrder[ItemT]:
    return StrictOrder(group_of=_group, place_of=_joined, ready_of=_ready_ms, batch_max=queue.policy.order_batch_max)


def _joined(item: ScheduledItem) -> int:
    return item.joined


def _group(item: ScheduledItem) -> Group:
    return item.group


def _ready_ms(item: ScheduledItem) -> int:
    return item.ready_ms
