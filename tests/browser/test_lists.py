"""Long lists: search, order, filters, pages, previews, times and folded errors; phones; empty states."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.viewer import Served, Viewer, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TRACEBACK = "Traceback (most recent call last):\n" + "\n".join(f"  line {number}" for number in range(40))


def test_all_queues_are_searched_sorted_and_paged(tmp_path: Path, viewer: Viewer) -> None:
    """Of sixty queues a page shows 25; search finds each, and every column orders them."""
    with served(tmp_path) as server:
        for number in range(60):
            server.post("queues/create", {"queue": f"q{number:02}"})
        server.enqueue("q42", "acme", 5)
        page = viewer.open(server)
        viewer.sees("1 to 25 of 60 queues")
        names = page.locator("table", has_text="delivered /s").locator("tbody th")
        assert names.first.inner_text() == "q42"
        page.click("button.sort:text-is('queue')")
        assert names.all_inner_texts() == [f"q{number:02}" for number in range(25)]
        assert page.locator("th[aria-sort=ascending]").inner_text() == "queue"
        page.click("text=Next")
        viewer.sees("26 to 50 of 60 queues")
        page.click("button.sort:text-is('waiting')")
        assert names.first.inner_text() == "q42"
        page.fill("#queue-search", "Q59")
        viewer.sees("1 to 1 of 1 queues")
        assert names.all_inner_texts() == ["q59"]
        page.fill("#queue-search", "")
        page.select_option("#queue-filter", "with problems")
        viewer.sees("1 to 1 of 1 queues")


def test_messages_have_pages_filters_previews_and_times(server: Served, viewer: Viewer) -> None:
    """Fifty to a page, by key and status if wanted, with the beginning of the payload and how long ago."""
    server.post("queues/create", {"queue": "long"})
    payload = base64.b64encode(b'{"order": 7, "note": "' + b"x" * 200).decode()
    server.enqueue("long", "acme", 60, payload=payload)
    server.enqueue("long", "bakery", 2)
    page = viewer.open(server, "messages/long")
    viewer.sees("First messages of long: 1 to 50, oldest first")
    assert page.locator("td.preview").first.inner_text().startswith('{"order": 7, "note": "xxx')
    assert page.locator("tbody time").first.inner_text().endswith(("ago", "just now"))
    assert "UTC" in (page.locator("tbody time").first.get_attribute("title") or "")
    page.click("text=Next")
    viewer.sees("First messages of long: 51 to 62, oldest first")
    page.fill("#key-filter", "bakery")
    viewer.sees("First messages of long: 1 to 2, oldest first")
    assert viewer.cells("bakery")[2] == "bakery"
    server.post("queue/lease", {"queue": "long", "count": 3, "visibility_ms": 600_000})
    page.fill("#key-filter", "")
    page.select_option("#status-filter", "leased")
    viewer.sees("First messages of long: 1 to 3, oldest first")
    page.select_option("#status-filter", "delayed")
    viewer.sees("First messages of long: none")


def test_long_errors_are_folded(server: Served, viewer: Viewer) -> None:
    """Three hundred tracebacks do not make a page of many screens: each is one line that opens."""
    server.post("queues/create", {"queue": "crashing"})
    server.enqueue("crashing", "acme", 300)
    receipts = server.lease("crashing", 300)
    nack = {"queue": "crashing", "receipts": receipts, "intent": "dead", "error": TRACEBACK}
    server.post("queue/nack", nack)
    page = viewer.open(server, "dead/crashing")
    viewer.sees("1 to 25 of 300 dead letters")
    assert page.evaluate("document.documentElement.scrollHeight") < 4_000
    error = page.locator("details.folded").first
    error.locator("summary").click()
    error.locator("pre", has_text="line 39").wait_for()
    server.enqueue("crashing", "acme")  # the next snapshots do not close it
    viewer.sees("300 dead letters of crashing")
    assert error.locator("pre").is_visible()


def test_a_phone_shows_every_column(server: Served, browser: Browser) -> None:
    """Wait reason, waits and controls are on the screen, words are whole, and the navigation is one line."""
    server.post("queues/create", {"queue": "pocket"})
    server.post("config/set", {"values": {"throttle:smtp-pocket:burst": "1", "throttle:smtp-pocket:rate": "0.5"}})
    server.enqueue("pocket", "museum-of-modern-art", 5, throttles=["smtp-pocket"])
    viewer = Viewer(browser, width=390)
    page = viewer.open(server, "queue/pocket")
    server.lease("pocket")
    row = page.locator("tbody tr", has_text="museum-of-modern-art").first
    row.wait_for()
    for part in (row.locator("td.why"), row.get_by_role("button").first, row.locator("td[data-title='wait p99']")):
        box = part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    header = page.locator("header").bounding_box()
    assert header is not None
    assert header["height"] < 90
    viewer.close()


def test_an_empty_server_shows_the_first_command(tmp_path: Path, viewer: Viewer) -> None:
    """The commands name this server, and go once there is a queue; an unknown address says so."""
    with served(tmp_path) as server:
        page = viewer.open(server)
        page.locator(".welcome code", has_text=f"fairlane --server {server.address} queue create orders").wait_for()
        page.locator(".welcome").get_by_role("button", name="Copy").first.wait_for()
        server.post("queues/create", {"queue": "orders"})
        viewer.shows("orders", "healthy")
        assert not page.locator(".welcome").is_visible()
        viewer.open(server, "nowhere")
        viewer.sees("The address names no page of the dashboard.")


def test_a_thousand_queues_and_ten_thousand_keys_stay_small(tmp_path: Path, viewer: Viewer) -> None:
    """The page holds the rows that it shows, and not one for each queue or key."""
    with served(tmp_path) as server:
        for number in range(1_000):
            server.post("queues/create", {"queue": f"q{number:03}"})
        for first in range(0, 10_000, 1_000):
            messages = [{"fairness_key": f"tenant-{number}"} for number in range(first, first + 1_000)]
            server.post("queue/enqueue", {"queue": "q500", "messages": messages})
        page = viewer.open(server)
        viewer.sees("1 to 25 of 1,000 queues")
        viewer.sees("10,000 active keys")
        assert page.locator("tbody tr").count() <= 25 + 8
        assert page.evaluate("document.querySelectorAll('*').length") < 2_000
