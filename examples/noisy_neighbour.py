"""A noisy and two quiet tenants, through a plain FIFO and through Fairlane, drawn live.

Run it with ``make demo``. The workers handle 200 tasks a second. One tenant sends 3 000 within two seconds; the others
keep sending a few a second. Time is virtual, so every run is the same. A terminal shows it in real time; otherwise only
the result is printed.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import statistics
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairlane.scheduler import Kernel, Task

NOISY = "acme"
QUIET = ("bakery", "clinic")
TENANTS = (NOISY, *QUIET)
COLOURS = {"acme": "red", "bakery": "green", "clinic": "cyan"}
TASKS_PER_SECOND = 200
STEP_MS = 5
FRAME_MS = 50
SECONDS = 12
SNAPSHOT_MS = 4_000
BAR_WIDTH = 28


@dataclass(slots=True)
class Tenant:
    """The tasks and waits of one tenant on one side."""

    waiting: int = 0
    waits_ms: list[int] = field(default_factory=list)


class Side(ABC):
    """One way to choose the next task."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.tenants = {name: Tenant() for name in TENANTS}

    def send(self, name: str, now_ms: int) -> None:
        self.tenants[name].waiting += 1
        self.put(Task(name, now_ms), now_ms)

    def work(self, now_ms: int) -> None:
        task = self.pull(now_ms)
        if task is not None:
            tenant = self.tenants[str(task.key)]
            tenant.waiting -= 1
            tenant.waits_ms.append(now_ms - task.payload)

    @abstractmethod
    def put(self, task: Task[int], now_ms: int) -> None: ...

    @abstractmethod
    def pull(self, now_ms: int) -> Task[int] | None: ...


class Fifo(Side):
    """First in, first out, for all tenants together."""

    def __init__(self) -> None:
        super().__init__("Plain FIFO")
        self._tasks: deque[Task[int]] = deque()

    def put(self, task: Task[int], now_ms: int) -> None:  # noqa: ARG002 - a FIFO has no use for the time
        self._tasks.append(task)

    def pull(self, now_ms: int) -> Task[int] | None:  # noqa: ARG002 - see put
        return self._tasks.popleft() if self._tasks else None


class Fair(Side):
    """Fairlane: every tenant with work gets its turn."""

    def __init__(self) -> None:
        super().__init__("Fairlane")
        self._kernel: Kernel[Task[int]] = Kernel()

    def put(self, task: Task[int], now_ms: int) -> None:
        self._kernel.offer(task, now_ms)

    def pull(self, now_ms: int) -> Task[int] | None:
        tasks = self._kernel.take(1, now_ms)
        return tasks[0] if tasks else None


def arrivals_at(now_ms: int, chance: random.Random) -> list[str]:
    """Return the tenants that send a task in this step."""
    senders = []
    if 1_000 <= now_ms < 3_000:
        senders += [NOISY] * round(3_000 / (2_000 / STEP_MS))
    if chance.random() < 8 * STEP_MS / 1_000:
        senders.append("bakery")
    if chance.random() < 4 * STEP_MS / 1_000:
        senders.append("clinic")
    return senders


def step(sides: list[Side], now_ms: int, chance: random.Random) -> None:
    """Run one step: tasks arrive, and the workers of each side finish one."""
    for name in arrivals_at(now_ms, chance):
        for side in sides:
            side.send(name, now_ms)
    for side in sides:
        side.work(now_ms)


def seconds(wait_ms: float) -> str:
    return f"{wait_ms:.0f} ms" if wait_ms < 1_000 else f"{wait_ms / 1_000:.1f} s"


def picture(sides: list[Side], now_ms: int) -> Group:
    """Draw the backlog of each side, and how long the last tasks waited."""
    most = max(1, *(tenant.waiting for side in sides for tenant in side.tenants.values()))
    panels = [Panel(_bars(side, most), title=f"[bold]{side.title}[/bold]", width=62) for side in sides]
    clock = Text(f"{now_ms / 1_000:5.1f} s   {TASKS_PER_SECOND} tasks/s are handled; who waits, and for how long?")
    return Group(clock, Columns(panels))


def _bars(side: Side, most: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7)
    table.add_column(width=BAR_WIDTH)
    table.add_column(width=8, justify="right")
    table.add_column(width=10, justify="right")
    table.add_row("", "waiting", "", "last wait", style="dim")
    for name, tenant in side.tenants.items():
        length = -(-BAR_WIDTH * tenant.waiting // most)
        last = seconds(tenant.waits_ms[-1]) if tenant.waits_ms else "-"
        table.add_row(Text(name, COLOURS[name]), Text("█" * length, COLOURS[name]), str(tenant.waiting), last)
    return table


def outcome(sides: list[Side]) -> Table:
    """Compare shares and waits."""
    table = Table(title=f"After {SECONDS} seconds")
    for column in ("", "tenant", "handled", "share", "wait p50", "wait p99", "longest"):
        table.add_column(column, justify="left" if column in ("", "tenant") else "right")
    for side in sides:
        handled = sum(len(tenant.waits_ms) for tenant in side.tenants.values())
        for name, tenant in side.tenants.items():
            waits = sorted(tenant.waits_ms) or [0]
            p99 = waits[min(len(waits) - 1, len(waits) * 99 // 100)]
            numbers = (statistics.median(waits), p99, waits[-1])
            share = f"{100 * len(tenant.waits_ms) / handled:.1f} %"
            table.add_row(
                side.title, name, str(len(tenant.waits_ms)), share, *map(seconds, numbers), style=COLOURS[name]
            )
        table.add_section()
    return table


def verdict(sides: list[Side]) -> str:
    fifo, fair = (max(max(side.tenants[name].waits_ms) for name in QUIET) for side in sides)
    return (
        f"The quiet tenants waited up to [bold]{seconds(fifo)}[/bold] in the FIFO, "
        f"[bold]{seconds(fair)}[/bold] in Fairlane. {NOISY} got the rest."
    )


def run(console: Console, *, is_live: bool, until_ms: int = SECONDS * 1_000) -> list[Side]:
    sides: list[Side] = [Fifo(), Fair()]
    chance = random.Random(7)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for now_ms in range(0, until_ms, STEP_MS):
            step(sides, now_ms, chance)
            if is_live and now_ms % FRAME_MS == 0:
                live.update(picture(sides, now_ms), refresh=True)
                time.sleep(FRAME_MS / 1_000)  # noqa: TID251 - people watch this in real time
    return sides


def save_picture(path: str) -> None:
    """Write the README's picture: the moment after the flood, and the result."""
    console = Console(record=True, width=128, file=io.StringIO())
    console.print(picture(run(console, is_live=False, until_ms=SNAPSHOT_MS), SNAPSHOT_MS))
    sides = run(console, is_live=False)
    console.print(outcome(sides))
    console.print(verdict(sides))
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL)  # works offline
    Path(path).write_text(svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="print the result without the animation")
    parser.add_argument("--picture", metavar="PATH", help="write an SVG picture instead")
    arguments = parser.parse_args()
    if arguments.picture:
        save_picture(arguments.picture)
        return
    console = Console()
    try:
        sides = run(console, is_live=console.is_terminal and not arguments.fast)
    except KeyboardInterrupt:
        console.print("Stopped.")
        return
    console.print(outcome(sides))
    console.print(verdict(sides))


if __name__ == "__main__":
    main()
