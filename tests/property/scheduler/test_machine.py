"""The kernel keeps its rules under every interleaving of its calls."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.scheduler.machine import KernelMachine


def test_the_kernel_agrees_with_the_naive_model_after_every_call() -> None:
    """For any calls in any order, the kernel answers like a model that scans plain lists."""
    run_state_machine_as_test(KernelMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
