"""Write the screenshots of the dashboard in docs/images, from a real server under load and a real browser.

Usage: python tools/make_screenshots.py [FOLDER]. It needs playwright, Chromium and Spark, and takes three minutes: the
example pipeline.py creates tables and a report first.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from shutil import which

from playwright.async_api import Browser, Page, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from busy_server import load, server  # noqa: E402 - needs the path above

WARMING_S = 90
SIZES = {"": (1280, 800), "_phone": (390, 844)}


async def main(folder: Path) -> None:
    """Write all screenshots."""
    made = tempfile.mkdtemp(prefix="fairlane-")
    making = await asyncio.create_subprocess_exec(sys.executable, str(ROOT / "examples" / "pipeline.py"), made)
    await making.wait()
    async with server("--reports", made) as address:
        loading = asyncio.create_task(load(address))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=which("chromium"))
            await _shoot_all(browser, address, folder)
            await browser.close()
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


async def _shoot_all(browser: Browser, address: str, folder: Path) -> None:
    page = await _opened(browser, address, "", is_dark=False)
    dark = await _opened(browser, address, "", is_dark=True)
    phone = await _opened(browser, address, "_phone", is_dark=False)
    await page.goto(f"{address}/#/queue/mail")
    await asyncio.sleep(WARMING_S)
    await _shoot(page, folder / "dashboard_queue.png", height=1500)
    await _shoot(dark, folder / "dashboard_dark.png")
    await _shoot(phone, folder / "dashboard_phone.png")
    await page.goto(f"{address}/#/")
    await page.wait_for_selector(".verdicts li")
    await _shoot(page, folder / "dashboard.png")
    await page.goto(f"{address}/#/dead/mail")
    await page.wait_for_selector("tbody button.link")
    await page.click("#dry")
    await page.wait_for_selector("text=dry run")
    await _shoot(page, folder / "dashboard_dead.png")
    await page.click("a[href^='#/message/mail.dlq/']")
    await page.wait_for_selector("#history li")
    await _shoot(page, folder / "dashboard_message.png")
    await page.goto(f"{address}/#/controls")
    await page.wait_for_selector("text=throttle:smtp-post:rate")
    await _shoot(page, folder / "dashboard_controls.png")
    await page.goto(f"{address}/#/hooks/invoices")
    await page.wait_for_selector("text=Current on_enqueue hook of invoices.")
    await page.click("#take")
    await page.wait_for_timeout(500)  # the queue may be empty for a moment
    await page.click("#dry-run")
    await page.wait_for_selector("text=fairness_key")
    await _shoot(page, folder / "dashboard_hooks.png")
    await page.goto(f"{address}/#/policy/mail")
    await page.wait_for_selector("text=Visibility timeout")
    await _shoot(page, folder / "dashboard_policy.png", height=1250)
    await page.goto(f"{address}/#/pipeline")
    await page.click("nav.tabs a:text-is('Shares')")
    await page.wait_for_selector("#report .main-svg .trace")
    await _shoot(page, folder / "dashboard_pipeline.png")
    await page.goto(f"{address}/docs#enqueue")
    await page.wait_for_selector("details#enqueue[open] tbody")
    await _shoot(page, folder / "api_docs.png")


async def _opened(browser: Browser, address: str, size: str, *, is_dark: bool) -> Page:
    width, height = SIZES[size]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if is_dark else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    page.on("console", lambda message: print(message.type, message.text))
    page.on("pageerror", lambda error: print("error", error))
    await page.goto(f"{address}/")
    await page.wait_for_selector(".verdicts li")
    return page


async def _shoot(page: Page, file: Path, *, height: int | None = None) -> None:
    size = page.viewport_size
    if height is not None and size is not None:
        await page.set_viewport_size({**size, "height": height})
        await page.wait_for_timeout(1_500)  # until charts are laid out
    await page.screenshot(path=file)
    if size is not None:
        await page.set_viewport_size(size)
    print(file)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"))
