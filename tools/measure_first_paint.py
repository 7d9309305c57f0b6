"""Measure how soon the dashboard shows something, on a server with 1,000 queues and 10,000 fairness keys.

Usage: python tools/measure_first_paint.py [LOADS]. It needs playwright and Chromium. For each page it prints the median
and the slowest of several loads in a new browser context: the first contentful paint, and when the rows were there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from shutil import which
from statistics import median

import httpx
from playwright.async_api import Browser, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from busy_server import server  # noqa: E402 - needs the path above

QUEUES, KEYS, BATCH = 1_000, 10_000, 1_000
PAGES = {"": "text=1 to 25 of 1,000 queues", "queue/q000": "text=10,000 active keys"}
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


async def main(loads: int) -> None:
    """Print the times of each page."""
    async with server() as address:
        await _fill(address)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=which("chromium"))
            for place, wanted in PAGES.items():
                times = [await _load(browser, f"{address}/#/{place}", wanted) for _ in range(loads)]
                paints, rows = zip(*times, strict=True)
                print(
                    f"#/{place}: first paint median {median(paints):.0f} ms, slowest {max(paints):.0f} ms; "
                    f"rows median {median(rows):.0f} ms, slowest {max(rows):.0f} ms"
                )
            await browser.close()


async def _fill(address: str) -> None:
    async with httpx.AsyncClient(base_url=f"{address}/v1/", timeout=60) as http:
        for number in range(QUEUES):
            await http.post("queues/create", json={"queue": f"q{number:03}"})
        for first in range(0, KEYS, BATCH):
            messages = [{"fairness_key": f"tenant-{number}"} for number in range(first, first + BATCH)]
            await http.post("queue/enqueue", json={"queue": "q000", "messages": messages})


async def _load(browser: Browser, url: str, wanted: str) -> tuple[float, float]:
    """Return when a page painted first and when it had its rows, in milliseconds after the navigation began."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    await page.wait_for_selector(wanted)
    rows: float = await page.evaluate("performance.now()")
    paint: float = await page.evaluate(_PAINT)
    await context.close()
    return paint, rows


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
