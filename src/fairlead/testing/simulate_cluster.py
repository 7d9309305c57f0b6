"""Replay the simulation of several nodes: ``python -m fairlead.testing.simulate_cluster --seed 7``.

Each seed gives one line. A broken promise gives the seed, the step and what led to it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter

from fairlead.testing.cluster_simulation import STEPS, ClusterSimulation, ClusterSummary
from fairlead.testing.simulation import SimulationFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds asked for and return the exit code."""
    asked = _parser().parse_args(arguments)
    first, last = asked.seeds if asked.seeds is not None else (asked.seed, asked.seed)
    failed = 0
    for seed in range(first, last + 1):
        began = perf_counter()
        simulation = ClusterSimulation(seed, steps=asked.steps)
        try:
            summary = simulation.run()
        except SimulationFailed as failure:
            failed += 1
            text = str(failure)
            sys.stdout.write(f"FAILED {text if asked.verbose or first == last else text.splitlines()[0]}\n")
        else:
            sys.stdout.write(f"{_line(summary)} seconds={perf_counter() - began:.2f}\n")
            if asked.verbose:
                sys.stdout.write(f"{simulation.trace()}\n")
        sys.stdout.flush()
    if first != last:
        sys.stdout.write(f"{last - first + 1} seeds, {failed} failed\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairlead.testing.simulate_cluster", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one seed")
    which.add_argument("--seeds", type=_span, metavar="A-B", help="run the seeds from A to B")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"how long a run is, {STEPS} by default")
    parser.add_argument("--verbose", action="store_true", help="show what happened")
    return parser


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _line(summary: ClusterSummary) -> str:
    troubles = ",".join(f"{name[1:]}:{count}" for name, count in sorted(summary.troubles.items())) or "none"
    return (
        f"seed={summary.seed} enqueued={summary.enqueued} deliveries={summary.deliveries} acked={summary.acked} "
        f"refused={summary.refused} lost_answers={summary.lost_answers} openings={summary.openings} "
        f"fenced={summary.fenced} moves={summary.moves} troubles={troubles}"
    )


if __name__ == "__main__":
    sys.exit(main())
