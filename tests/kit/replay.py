"""Runs seeds of a simulation from the command line: one line per seed, and the trace of a broken promise."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol, TypeVar

from tests.kit.simulation.simulation import SimulationFailed

_SEED_MAX = 2**31
Told = TypeVar("Told", covariant=True)  # noqa: PLC0105 - what a run tells, not who is told


class Replayed(Protocol[Told]):
    """A run of one seed."""

    def run(self) -> Told:
        """Run, and return a summary."""

    def trace(self) -> str:
        """Return the trace, one step per line."""


def replay(
    asked: argparse.Namespace, make: Callable[[int, int], Replayed[Told]], line_of: Callable[[Told], str]
) -> int:
    """Run the requested seeds and return the exit code; ``make`` creates a run from a seed and a number of steps."""
    seeds = _seeds(asked)
    failed = 0
    for seed in seeds:
        began = perf_counter()
        simulation = make(seed, asked.steps)
        try:
            summary = simulation.run()
        except SimulationFailed as failure:
            failed += 1
            text = str(failure)
            sys.stdout.write(f"FAILED {text if asked.verbose or len(seeds) == 1 else text.splitlines()[0]}\n")
        else:
            sys.stdout.write(f"{line_of(summary)} seconds={perf_counter() - began:.2f}\n")
            if asked.verbose:
                sys.stdout.write(f"{simulation.trace()}\n")
        sys.stdout.flush()
    if len(seeds) > 1:
        sys.stdout.write(f"{len(seeds)} seeds, {failed} failed\n")
    return 1 if failed else 0


def _seeds(asked: argparse.Namespace) -> Sequence[int]:
    if asked.random is not None:
        chance = random.SystemRandom()  # seeds that no run has had before; each is printed with its line
        return [chance.randrange(_SEED_MAX) for _ in range(asked.random)]
    first, last = asked.seeds if asked.seeds is not None else (asked.seed, asked.seed)
    return range(first, last + 1)


def asked_for(arguments: Sequence[str] | None, *, program: str, told: str | None, steps: int) -> argparse.Namespace:
    """Parse the command line: the seeds, the number of steps, and whether to print the trace."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=told)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one seed")
    which.add_argument("--seeds", type=_span, metavar="A-B", help="run the seeds from A to B")
    which.add_argument("--random", type=int, metavar="N", help="run N random seeds")
    parser.add_argument("--steps", type=int, default=steps, help=f"number of steps per run, {steps} by default")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    return parser.parse_args(arguments)


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)
