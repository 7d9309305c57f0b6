"""Compare the benchmarks of two checkouts in one run: ``python tools/compare_benchmarks.py OTHER NAME...``.

The checkouts take turns, because a machine that slows down for a minute must slow both. Goals are matched by their
order, so a goal may have been reworded since. The best value of each goal counts: noise only ever slows.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent.parent
GOAL = re.compile(r"^\s+(?:reached|missed)\s+(?P<what>.*): (?P<measured>[-+.e\d]+)\S*.*?, goal (?P<most>at most)?")


def goals(checkout: Path, name: str) -> list[tuple[str, float, bool]]:
    """Run a benchmark with ``--quick`` and return its goals: name, measured value, and whether less is better."""
    command = [str(checkout / ".venv/bin/python"), "-m", f"benchmarks.{name}", "--quick"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    found = [match for line in done.stdout.splitlines() if (match := GOAL.match(line))]
    if not found:
        raise SystemExit(f"benchmarks.{name} in {checkout} printed no goal:\n{done.stdout}{done.stderr}")
    return [(match["what"], float(match["measured"]), match["most"] is not None) for match in found]


def compare(other: Path, name: str, *, rounds: int) -> Table:
    """Return a table with the best value of each goal in both checkouts, and the ratio between them."""
    runs: dict[Path, list[list[tuple[str, float, bool]]]] = {HERE: [], other: []}
    for _ in range(rounds):
        for checkout, found in runs.items():
            found.append(goals(checkout, name))
    table = Table("goal", "other", "here", "here / other", title=f"benchmarks.{name}, best of {rounds}")
    for here, there in zip(zip(*runs[HERE], strict=True), zip(*runs[other], strict=True), strict=True):
        what, _, is_cost = here[0]
        best = min if is_cost else max
        ours, theirs = best(value for _, value, _ in here), best(value for _, value, _ in there)
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        table.add_row(what, f"{theirs:.3g}", f"{ours:.3g}", ratio + (" (less is better)" if is_cost else ""))
    return table


def main() -> int:
    """Compare the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout with its own .venv")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a module of benchmarks/")
    parser.add_argument("--rounds", type=int, default=3, help="how often each checkout runs each benchmark")
    options = parser.parse_args()
    console = Console(width=120)
    for name in options.names:
        console.print(compare(options.other.resolve(), name, rounds=options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
