"""A server whose clock is wrong: ``python skewed_server.py MILLISECONDS [--name value ...]``."""

from __future__ import annotations

import sys

from fairlane.adapters.system import SystemClock
from fairlane.server.__main__ import main


def skew(by_ms: int) -> None:
    """Shift every system clock of this process by a number of milliseconds."""
    now_ms = SystemClock.now_ms

    def skewed(self: SystemClock) -> int:
        return now_ms(self) + by_ms

    SystemClock.now_ms = skewed  # type: ignore[method-assign] # that is what this process is for


if __name__ == "__main__":
    skew(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
