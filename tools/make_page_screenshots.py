"""Write the screenshots of the report, of what-if and of the forecast in docs/images, with 3 and with 3,000 tenants.

Usage: python tools/make_page_screenshots.py [FOLDER]. It needs playwright, Chromium and Spark, and takes some minutes.
Journals and tables are made in the folder, and made only once; without one, in a temporary folder.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from shutil import which

from playwright.async_api import async_playwright

from fairlane.report import make_report
from fairlane.spark import spark_session
from fairlane.spark.forecast.forecast import forecast
from fairlane.spark.forecast.page import page_of as forecast_page
from fairlane.spark.pipeline import CONF, JournalFolder, run_pipeline
from fairlane.spark.whatif.comparison import Journal, compare
from fairlane.spark.whatif.page import page_of as whatif_page
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import sweep
from fairlane.spark.whatif.targets import target_of
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT))

from tests.unit.forecast.recorded_days import Rate, RecordedDays  # noqa: E402 - needs the path above

MESSAGES = {3: 6_000, 3_000: 20_000}
"""How many messages there are, by the number of tenants."""
DAILY = (2, 1, 1, 1, 1, 2, 4, 8, 14, 18, 20, 20, 16, 18, 19, 18, 15, 11, 8, 6, 5, 4, 3, 2)
"""How busy the hours of a day are, of 20."""
LARGE, SMALL = 40, 700
"""How many tenants send at every hour, and how many of the others at the busiest."""
CREW = {3: (3, 90_000), 3_000: (5, 9_000)}
"""How many consumers there are and how long a message takes, by the number of tenants."""
WIDTH, HEIGHT = 1200, 1500


def traffic(tenants: int) -> Traffic:
    """Return half an hour of traffic with a bit of everything."""
    return Traffic(
        messages=MESSAGES[tenants],
        tenants=tenants,
        load=0.95,
        zipf=0.9,
        throttles=("mail-api",),
        burst_part=0.5,
        failing_part=0.03,
        poison_part=0.002,
        deadline_part=0.05,
    )


def rate_of(tenants: int) -> Rate:
    """Return how many messages come in each hour: many from large tenants, one from small ones now and then."""
    sizes = [40 / (1 + at) ** 0.7 for at in range(min(tenants, LARGE))]

    def rate(day: int, hour: int) -> dict[str, int]:
        busy = DAILY[hour] / 20
        found = {f"tenant-{at:04}": round(size * busy * (1 + (at + day) % 3 / 20)) for at, size in enumerate(sizes)}
        if tenants > LARGE:
            small = [LARGE + (day * 1_009 + hour * 613 + at) % (tenants - LARGE) for at in range(round(SMALL * busy))]
            found |= {f"tenant-{at:04}": 1 for at in small}
        return {name: count for name, count in found.items() if count}

    return rate


def make_pages(folder: Path, tenants: int) -> dict[str, Path]:
    """Make the three pages, and return them by name."""
    journal, tables, days = (folder / f"{name}-{tenants}" for name in ("journal", "tables", "days"))
    if not journal.exists():
        make_journal(journal, traffic(tenants))
    if not tables.exists():
        spark = spark_session("screenshots", master="local[2]", conf=CONF)
        run_pipeline(spark, JournalFolder(journal), tables)
    if not days.exists():
        consumers, service_ms = CREW[tenants]
        RecordedDays(rate_of(tenants), days=8, consumers=consumers, service_ms=service_ms).write(days)
    report = folder / f"report-{tenants}"
    make_report(tables, report, formats=("html",))
    known = Journal(journal)
    scenarios = sweep(Scenario(name=ORIGINAL), ["weight:acme=2,8"], known.queues, known.policies)
    whatif, forecasts = folder / f"whatif-{tenants}.html", folder / f"forecast-{tenants}.html"
    whatif.write_text(whatif_page(compare(known, scenarios)), encoding="utf-8")
    found = forecast(str(days), [target_of("wait_p99:*<=2m")], horizon_hours=48)
    forecasts.write_text(forecast_page(found), encoding="utf-8")
    return {"report": report / "report.html", "whatif": whatif, "forecast": forecasts}


async def shoot(pages: dict[str, Path]) -> None:
    """Write a screenshot of the top of each page."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=which("chromium"))
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.on("pageerror", lambda error: print("error", error))
        for name, file in pages.items():
            await page.goto(file.as_uri())
            await page.wait_for_timeout(2_000)  # until charts are laid out
            await page.screenshot(path=IMAGES / f"{name}.png")
            print(IMAGES / f"{name}.png")
        await browser.close()


def main(folder: Path) -> None:
    """Write all screenshots."""
    pages = {f"{name}_{tenants}": file for tenants in MESSAGES for name, file in make_pages(folder, tenants).items()}
    del pages["forecast_3"]  # the guide shows the forecast of its own example, which has three tenants
    asyncio.run(shoot(pages))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fairlane-")))
