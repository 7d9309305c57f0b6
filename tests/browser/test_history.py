"""Old numbers look old, outages are gaps, and the page says what happened at a time."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.browser.viewer import Viewer, loaded, served
from tests.kit.waiting import wait_until


def test_numbers_without_a_connection_are_grey_and_have_an_age(tmp_path: Path, viewer: Viewer) -> None:
    """A banner says how old all numbers are, also on a page that is opened meanwhile; it goes with the connection."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "orders"})
        server.enqueue("orders", "acme", 3)
        page = viewer.open(server, "queue/orders")
        viewer.shows("acme", "3")
        server.kill()
        stale = page.locator("#stale", has_text="All numbers are from 2 s ago")
        stale.wait_for()
        assert page.locator("main").evaluate("main => getComputedStyle(main).filter") == "grayscale(1)"
        page.evaluate("location.hash = '#/'")
        viewer.shows("orders", "no consumers", "3")
        assert page.locator("#stale").is_visible()
        assert not page.get_by_text("No queues yet").is_visible()
        server.start()
        page.locator("#stale").wait_for(state="hidden")
        assert page.locator("main").evaluate("main => getComputedStyle(main).filter") == "none"


def test_an_outage_is_a_gap_in_the_charts(tmp_path: Path, viewer: Viewer) -> None:
    """No line is drawn from the last value before the outage to the first one after it."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "busy"})
        with loaded(server, "busy"):
            page = viewer.open(server, "queue/busy")
            page.click("text=Last 5 minutes")
            line = page.locator("#history-charts path.line.s1")
            wait_until(lambda: line.count() == 2, what="rates and backlog are drawn")
            server.kill()
            page.locator("#stale", has_text="5 s ago").wait_for()
            server.start()
            wait_until(lambda: line.count() == 4, what="both charts have two lines")


def test_the_page_answers_what_happened_at_a_time(tmp_path: Path, viewer: Viewer) -> None:
    """The server recorded while nobody watched; pointing at a chart tells the values, and an empty time says so."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "orders"})
        server.enqueue("orders", "acme", 30)
        server.enqueue("orders", "bakery", 10)
        server.lease("orders", 8)
        wait_until(lambda: len(recorded(server.address)) >= 2, what="the server has recorded two slots")
        page = viewer.open(server, "queue/orders")
        page.locator("#history-charts .area").first.wait_for(state="attached")
        viewer.sees("Recorded for")
        box = page.locator("#history-charts svg").nth(1).bounding_box()
        assert box is not None
        first = page.evaluate("document.querySelector('#history-charts path.area').getBBox().x")
        page.mouse.move(box["x"] + first + 1, box["y"] + 40)
        page.locator("#moment", has_text="served most: acme 50 %, bakery 50 %").wait_for()
        page.locator("#moment", has_text="32 waiting").wait_for()
        page.mouse.move(0, 0)
        hour, minute = page.evaluate("[new Date(Date.now() - 7200000).getUTCHours(), new Date().getUTCMinutes()]")
        page.fill("#at", f"{hour:02}:{minute:02}")
        page.locator(
            "#moment", has_text=f"{hour:02}:{minute:02} UTC: nothing was recorded. The history begins"
        ).wait_for()
        assert page.locator("[data-range=day]").get_attribute("aria-pressed") == "true"


def recorded(address: str) -> list[object]:
    """Return the slots of the queue orders."""
    slots: list[object] = httpx.get(f"{address}/v1/history?queue=orders").json()["slots"]
    return slots
