"""Shared parts of the benchmarks: options, interleaved timing, tables, and goals that can be checked."""

from __future__ import annotations

import argparse
import gc
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run: ``quick`` takes at most 50 s, ``check`` makes a missed goal an error."""

    quick: bool
    check: bool

    @property
    def repeats(self) -> int:
        """The number of repetitions; the best one counts, because noise only ever slows."""
        return 3 if self.quick else 9


def parse_options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="take at most 50 seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    return Options(quick=arguments.quick, check=arguments.check)


Work = Callable[[], int]
"""Does some work and returns the number of items moved."""


def rates(works: Sequence[Work], repeats: int) -> list[float]:
    """Return the best rate of each work, in items per CPU second, from interleaved runs that share all noise."""
    best = [0.0] * len(works)
    for _ in range(repeats):
        for at, work in enumerate(works):
            gc.collect()
            start = time.process_time()
            items = work()
            best[at] = max(best[at], items / (time.process_time() - start))
    return best


@dataclass(slots=True)
class Report:
    """Tables and goals, printed as they arrive."""

    options: Options
    console: Console = field(default_factory=lambda: Console(width=120))
    missed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def heading(self, title: str, *, repeats: int | None = None) -> None:
        machine = f"Python {platform.python_version()}, {platform.machine()}"
        self.console.print(f"\n[bold]{title}[/bold]  ({machine}, best of {repeats or self.options.repeats})")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table()
        for at, column in enumerate(columns):
            table.add_column(column, justify="left" if at == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def goal(
        self, what: str, *, measured: float, least: float = -math.inf, most: float = math.inf, unit: str = ""
    ) -> None:
        """Print whether a goal is reached: the value must be at least ``least``, or at most ``most``."""
        is_reached = least <= measured <= most
        mark = "[green]reached[/green]" if is_reached else "[red]missed [/red]"
        wanted = f"goal {least:g}" if most == math.inf else f"goal at most {most:g}"
        self.console.print(f"  {mark} {what}: {measured:.3g}{unit}, {wanted}{unit}")
        if not is_reached:
            self.missed.append(what)

    def not_run(self, what: str) -> None:
        """Print that a goal was not measured, because ``--quick`` is too small for it."""
        self.console.print(f"  not run with --quick: {what}")
        self.unknown.append(what)

    def finish(self) -> None:
        """Print the missed goals, and exit with 1 if ``--check`` was given."""
        reached = "All goals reached." if not self.unknown else "All goals reached that were run."
        self.console.print(f"\nMissed: {', '.join(self.missed)}." if self.missed else f"\n{reached}")
        sys.exit(1 if self.missed and self.options.check else 0)
