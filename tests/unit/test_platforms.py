"""Programs on a platform without POSIX signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairlane.platforms import posix_fault

WINDOWS = """
import asyncio, runpy, signal, sys, uvicorn, zoneinfo
sys.platform = "win32"
sys.modules |= dict.fromkeys(("resource", "fcntl"))
del signal.SIGHUP
"""
"""Takes away what Windows lacks, once the modules of others that choose between platforms are imported."""
PROGRAMS = {
    "python -m fairlane.server": "runpy.run_module('fairlane.server', run_name='__main__')",
    "serve()": "from fairlane.server.run import serve, ServerSettings; serve(ServerSettings())",
    "run_forever()": "from fairlane.worker import Worker; Worker().run_forever()",
}


def refused(program: str) -> list[str]:
    """Return what a program writes to standard error before it fails on Windows."""
    code = WINDOWS + PROGRAMS[program]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.splitlines()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_on_windows_says_in_one_line_why_it_ends(program: str) -> None:
    """Servers and workers import nothing that Windows lacks, and say what that is and where they run instead."""
    assert "needs POSIX signals and file locks, which Windows lacks. Run it in WSL" in refused(program)[-1]


def test_the_module_of_the_server_shows_no_traceback_on_windows() -> None:
    """``python -m fairlane.server`` prints that line and nothing else."""
    assert len(refused("python -m fairlane.server")) == 1


def test_other_platforms_have_what_programs_need() -> None:
    """There is no fault on Linux and macOS."""
    assert [posix_fault("fairlane serve", platform) for platform in ("linux", "darwin")] == [None, None]
