"""Damage a store in all known ways and 200 random ones, and print what came of each.

``python -m tests.kit.damage [log|rocksdb] [SEEDS]``
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.kit.damage.base import make_base
from tests.kit.damage.trial import SEEDS, Outcome, trials


def main(store: str = "log", seeds: str = str(SEEDS)) -> int:
    """Print a table, and return 1 if anything was lost silently."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "base"
        answered = make_base(base, store)
        print("| damage | outcome | unreadable | lost | acks undone | ids or tokens reused | repair |")
        print("|---|---|---|---|---|---|---|")
        outcomes = []
        for outcome in trials(base, answered, Path(place), store, seeds=int(seeds)):
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
    silent = sum(outcome.is_silent for outcome in outcomes)
    counts = Counter(outcome.result for outcome in outcomes)
    print(f"\n{len(outcomes)} damaged stores: {dict(counts.most_common())}; {silent} silent")
    return 1 if silent else 0


def _row(outcome: Outcome) -> str:
    counts = (outcome.unreadable, outcome.lost, outcome.undone, outcome.reused)
    return f"| {outcome.kind} | {outcome.result} | {' | '.join(map(str, counts))} | {outcome.repair} |"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
