"""All of Fairlane in a minute or two: a noisy neighbour in your browser, and the other examples in your terminal.

It starts a server under load, prints the dashboard's address, and runs the other examples one after another. The tables
and the report of the last one appear on the dashboard under Pipeline. In a terminal the server runs until Ctrl-C.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from busy_server import load, server

SHOWN = ("noisy_neighbour.py", "embedded.py", "tune.py", "pipeline.py")


async def show(example: str, *arguments: str) -> None:
    """Run another example as if you had started it yourself."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    path = str(Path(__file__).with_name(example))
    process = await asyncio.create_subprocess_exec(sys.executable, *warnings, path, *arguments)
    if await process.wait():
        raise SystemExit(f"{example} failed.")


async def main(folder: str) -> None:
    async with server("--reports", folder) as address:
        loading = asyncio.create_task(load(address))
        where = f"Open {address}/ to see who is noisy, who waits and why."
        print(f"{where} The other examples run here meanwhile.\n", flush=True)
        for example in SHOWN:
            await show(example, *([folder] if example == "pipeline.py" else []))
            print(flush=True)
        if sys.stdout.isatty():
            print(f"{where} Press Ctrl-C to stop.", flush=True)
            await loading
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(tempfile.mkdtemp(prefix="fairlane-")))
