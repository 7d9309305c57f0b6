"""Metrics of the process, under the names that Prometheus's clients use, where the operating system tells them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairlane.server.metrics.families import Family, single

if sys.platform != "win32":
    import resource

_PROC: Final = Path("/proc/self")
_START_TICKS: Final = 19
"""Where the fields of /proc/self/stat after the command's name have the start, in ticks since the machine booted."""


def process_families() -> Iterator[Family]:
    """Yield what is known of this process: processor time, memory, descriptors, and since when it runs."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    description = "CPU time of the process, user and system."
    yield Family("process_cpu_seconds_total", "counter", description, single(used.ru_utime + used.ru_stime))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY:
        yield Family("process_max_fds", "gauge", "Limit on open file descriptors.", single(limit))
    with suppress(OSError, ValueError):  # only Linux has these files
        yield from _proc_families(_PROC)


def _proc_families(proc: Path) -> Iterator[Family]:
    page_bytes, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    resident = int((proc / "statm").read_text().split()[1]) * page_bytes
    yield Family("process_resident_memory_bytes", "gauge", "Resident memory of the process.", single(resident))
    open_fds = sum(1 for _ in os.scandir(proc / "fd"))
    yield Family("process_open_fds", "gauge", "Open file descriptors.", single(open_fds))
    booted = next(line for line in (proc.parent / "stat").read_text().splitlines() if line.startswith("btime "))
    started = int((proc / "stat").read_text().rpartition(")")[2].split()[_START_TICKS]) / ticks
    description = "When the process started, as a Unix time."
    yield Family("process_start_time_seconds", "gauge", description, single(int(booted.split()[1]) + started))
