"""Install the programs that the tests start and pip can't bring, if this machine allows it.

As root on Debian or Ubuntu, the missing ones are installed with apt-get. Otherwise it prints what is missing: the tests
that need it are then skipped, and the end of the run names them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "initdb": "postgresql",
    "npm": "npm",
    "openssl": "openssl",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
}
"""The package that brings each program."""
POSTGRESQL = Path("/usr/lib/postgresql")  # Debian keeps its programs out of the path


def is_there(program: str) -> bool:
    """Return whether a program is installed."""
    return shutil.which(program) is not None or any(POSTGRESQL.glob(f"*/bin/{program}"))


def install(packages: list[str]) -> bool:
    """Install Debian packages; return whether that was possible."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    # The lists of packages may be as old as the machine's image. Another apt-get may be running.
    command = [apt, "-qq", "-o", "DPkg::Lock::Timeout=120"]
    # The tests run servers of their own, so the packages need not start any; this runlevel has none.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    steps = (["update"], ["install", "--yes", "--no-install-recommends", *packages])
    return all(
        subprocess.run([*command, *step], env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0
        for step in steps
    )


def main() -> int:
    """Install what is missing, or say that it is."""
    missing = sorted(package for program, package in PACKAGES.items() if not is_there(program))
    if missing:
        print(f"Installing for the tests: {', '.join(missing)} ...", flush=True)
        if not install(missing):
            print(f"!!! Not installed: {', '.join(missing)}. The tests that need them are SKIPPED. !!!")
    return 0


if __name__ == "__main__":
    sys.exit(main())
