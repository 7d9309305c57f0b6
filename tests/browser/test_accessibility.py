"""Accessibility of the dashboard: screen readers, keyboard, dark mode and small screens."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.browser.viewer import Served, Viewer, served
from tests.kit.servers.nodes import Cluster
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(600)  # axe-core checks every node of every page
PLACES = {
    "": "no consumers",
    "queue/seen": "no consumers",
    "messages/seen": "First messages of seen",
    "message": "Browse a queue",
    "create": "Visibility timeout",
    "policy/seen": "Visibility timeout",
    "schedules": "Create a schedule",
    "access": "Create an API key",
    "message/seen/{waiting}": "History",
    "dead": "seen",
    "dead/seen": "no ink",
    "pipeline": "Start the server with --reports",
    "controls": "smtp",
    "hooks/seen": "seen has no on_enqueue",
}
"""Every page, and a text that shows that it is complete."""
LOOKS = {"day": (False, 1200), "night": (True, 1200), "phone": (False, 390)}


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script of axe-core; skip the test if it is not installed."""
    spec = find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs axe-core: install axe-playwright-python, which ships it")
    return Path(next(iter(spec.submodule_search_locations)), "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def waiting(server: Served) -> str:
    """Fill a queue with messages in every state, and return the id of one."""
    server.post("queues/create", {"queue": "seen"})
    server.post("config/set", {"values": {"throttle:smtp:burst": "1", "throttle:smtp:rate": "0.001"}})
    (first,) = server.enqueue("seen", "acme", headers={"kind": "new"})
    server.enqueue("seen", "acme", 20)
    server.enqueue("seen", "post", 5, throttles=["smtp"])
    receipts = server.lease("seen", 4)
    server.post("queue/nack", {"queue": "seen", "receipts": receipts[1:3], "intent": "dead", "error": "no ink"})
    server.post("queue/consumer/register", {"queue": "seen", "consumer": "etl"})
    return first


def check(page: Page, axe: str, place: str) -> None:
    """Assert that axe-core finds nothing wrong with a page, and that it does not overflow its screen."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(found => found.violations)")
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], place
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), place


def viewer_with(browser: Browser, look: str) -> Viewer:
    """Open a tab, light or dark, wide or narrow."""
    is_dark, width = LOOKS[look]
    return Viewer(browser, is_dark=is_dark, width=width)


@pytest.mark.parametrize("look", LOOKS)
def test_pages_are_accessible(server: Served, browser: Browser, axe: str, waiting: str, look: str) -> None:
    """Axe-core finds no fault on any page, nor in a dialog, light or dark, wide or narrow, and none overflows."""
    viewer = viewer_with(browser, look)
    for place, text in PLACES.items():
        page = viewer.open(server, place.format(waiting=waiting))
        page.locator("main", has_text=text).wait_for()
        if place == "queue/seen":
            page.locator("#history-charts svg path, #history-charts svg circle").first.wait_for(state="attached")
        check(page, axe, place)
    page = viewer.open(server, "queue/seen")
    page.click("#delete")
    page.locator("dialog[open] #typed").wait_for()
    check(page, axe, "dialog")
    page.goto(f"{server.address}/docs#enqueue")
    page.locator("details#enqueue[open] .command").wait_for()
    check(page, axe, "docs")
    viewer.close()


def test_the_login_is_accessible(browser: Browser, axe: str, tmp_path: Path) -> None:
    """So is the form with the error about a wrong key."""
    with served(tmp_path, "--auth", "true") as server:
        for look in LOOKS:
            viewer = viewer_with(browser, look)
            page = viewer.open(server)
            page.locator("h1", has_text="Log in").wait_for()
            check(page, axe, "login")
            page.fill("#key", "wrong")
            page.keyboard.press("Enter")
            page.locator("main .wrong").wait_for()
            check(page, axe, "login with a wrong key")
            viewer.close()


def test_the_cluster_page_is_accessible(postgres: PostgresServer, browser: Browser, axe: str, tmp_path: Path) -> None:
    """With a queue that is split, and one that is not."""
    with Cluster.of(1, f"{postgres.url}&namespace={tmp_path.name}", tmp_path) as cluster:
        (node,) = cluster.nodes
        split = {"queue": "orders", "partitions": 2}
        requests = {"queues/create": {"queue": "mails"}, "queues/ensure": {"queue": "orders"}, "cluster/split": split}
        for path, body in requests.items():
            httpx.post(f"{node.url}/v1/{path}", json=body, timeout=PATIENCE_S).raise_for_status()
        for look in LOOKS:
            viewer = viewer_with(browser, look)
            viewer.page.goto(f"{node.url}/#/cluster")
            viewer.cells("orders~1")
            check(viewer.page, axe, "cluster")
            viewer.close()


def test_the_dashboard_works_with_the_keyboard_alone(server: Served, viewer: Viewer, waiting: str) -> None:
    """Skipping the header, opening a queue and cancelling a confirmation need no mouse."""
    assert waiting
    page = viewer.open(server)
    viewer.cells("seen")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("a", has_text="seen").first.focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Queue seen").wait_for()
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "pause"
    assert server.post("queue/stats", {"queue": "seen"})["is_paused"] is False
