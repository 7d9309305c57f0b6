"""All of Fairlane in a minute or two: a noisy neighbour in your browser, and meanwhile the rest in your terminal.

It starts a server with load and says where to look, then shows the other examples one after another. The tables and the
report of the last one are on the dashboard too, under Pipeline. At a terminal the server goes on until Ctrl-C.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from busy_server import load, server

SHOWN = ("noisy_neighbour.py", "embedded.py", "pipeline.py")


async def show(example: str, *arguments: str) -> None:
    """Run another example, as if it had been started by hand."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    path = str(Path(__file__).with_name(example))
    process = await asyncio.create_subprocess_exec(sys.executable, *warnings, path, *arguments)
    if await process.wait():
        raise SystemExit(f"{example} has failed.")


async def main(folder: str) -> None:
    async with server("--reports", folder) as address:
        loading = asyncio.create_task(load(address))
        where = f"Look at {address}/ to see who is noisy, who waits and why."
        print(f"{where} The load goes on while this goes on here.\n", flush=True)
        for example in SHOWN:
            await show(example, *([folder] if example == "pipeline.py" else []))
            print(flush=True)
        if sys.stdout.isatty():
            print(f"{where} Ctrl-C ends it.", flush=True)
            await loading
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(tempfile.mkdtemp(prefix="fairlane-")))
