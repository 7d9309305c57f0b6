"""What programs need of the platform they run on."""

from __future__ import annotations

import sys


def posix_fault(program: str, platform: str = sys.platform) -> str | None:
    """Return why a program that needs POSIX signals and file locks can't run here; None if it can."""
    if platform != "win32":
        return None
    return f"{program} needs POSIX signals and file locks, which Windows lacks. Run it in WSL or a container."
