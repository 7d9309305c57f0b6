"""Controls: hooks, stopping a redrive, pausing keys, and missing rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.viewer import Served, Viewer, served
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPT = 'function on_enqueue(msg) return { fairness_key = msg.headers["shop"], weight = 3 } end'


def test_a_hook_is_dry_run_and_set(server: Served, viewer: Viewer) -> None:
    """A dry run shows the result or fault of each sample and changes nothing; setting needs a confirmation."""
    server.post("queues/create", {"queue": "hooked"})
    server.enqueue("hooked", "acme", headers={"shop": "north"})
    page = viewer.open(server, "hooks/hooked")
    viewer.sees("hooked has no on_enqueue hook.")
    page.fill("#script", SCRIPT)
    page.click("#take")
    # ``wait_for_function`` evaluates its text in the page, which the page's security policy forbids the second time.
    wait_until(lambda: "north" in page.input_value("#samples"), what="A sample is taken")
    page.locator("#samples").press("Control+End")
    page.keyboard.type('\n{"headers": {}, "payload_size": 7}')
    page.click("#dry-run")
    assert viewer.cells("north")[1] == "fairness_key north, weight 3"
    assert page.locator("tbody tr").count() == 2
    page.fill("#script", "function on_enqueue(msg) return msg.nothing.there end")
    page.click("#dry-run")
    page.locator("tbody td", has_text="fault: ").first.wait_for()
    assert server.post("queue/stats", {"queue": "hooked"})["policy"]["on_enqueue"] is None
    page.fill("#script", SCRIPT)
    page.click("#set-hook")
    page.click("#no")
    page.click("#set-hook")
    page.click("#yes")
    viewer.sees("Current on_enqueue hook of hooked.")
    assert server.post("queue/stats", {"queue": "hooked"})["policy"]["on_enqueue"] == SCRIPT
    (message_id,) = server.enqueue("hooked", "ignored", headers={"shop": "south"})
    assert server.post("queue/get", {"queue": "hooked", "id": message_id})["fairness_key"] == "south"
    page.click("#remove-hook")
    page.click("#yes")
    viewer.sees("hooked has no on_enqueue hook.")
    page.goto(f"{server.address}/#/controls")
    viewer.sees("queue hooked created or updated")


def test_bypassed_hooks_are_seen_without_opening_their_page(server: Served, viewer: Viewer) -> None:
    """The list of queues and the page of the queue say that its hooks are bypassed, and link to them."""
    policy = {"on_enqueue": "function on_enqueue(message) error('no') end", "hook_breaker_cooldown_ms": 3_600_000}
    server.post("queues/create", {"queue": "bypassed", "policy": policy})
    viewer.open(server)
    viewer.shows("bypassed", "healthy")
    server.enqueue("bypassed", "acme", 5)
    page = viewer.open(server)
    page.locator("tbody tr", has_text="hooks failing").wait_for()
    page = viewer.open(server, "queue/bypassed")
    viewer.sees("hooks failing; bypassed for now")
    page.click("#bypassed")
    viewer.sees("open now, by faults")


def test_an_invalid_script_is_rejected(server: Served, viewer: Viewer) -> None:
    """The page shows syntax errors and samples that are not JSON; nothing is set."""
    server.post("queues/create", {"queue": "unhooked"})
    page = viewer.open(server, "hooks/unhooked")
    viewer.sees("unhooked has no on_enqueue hook.")
    page.fill("#samples", "not JSON")
    page.click("#dry-run")
    viewer.sees("Sample is not a JSON object: not JSON")
    page.fill("#script", "function on_enqueue(")
    page.click("#set-hook")
    page.click("#yes")
    page.locator("#notice", has_text="on_enqueue").wait_for()
    assert server.post("queue/stats", {"queue": "unhooked"})["policy"]["on_enqueue"] is None


def test_a_redrive_of_one_key_can_be_stopped(server: Served, viewer: Viewer) -> None:
    """Dead letters are filtered by key; a slow redrive shows its progress and can be stopped."""
    server.post("queues/create", {"queue": "letters"})
    server.enqueue("letters", "acme", 20)
    server.enqueue("letters", "bakery", 3)
    receipts = server.lease("letters", 23)
    server.post("queue/nack", {"queue": "letters", "receipts": receipts, "intent": "dead", "error": "no ink"})
    page = viewer.open(server, "dead/letters")
    assert viewer.cells("no ink")[2] == "23"
    page.fill("#letter-key", "nobody")
    page.click("#dry")
    assert viewer.cells("dry run")[4] == "0"
    page.fill("#letter-key", "acme")
    assert viewer.cells("no ink")[2] == "20"
    page.fill("#rate", "0.2")
    page.click("#redrive")
    page.click("#yes")
    running = page.locator("tbody tr", has_text="running")
    running.get_by_role("button", name="Stop").click()
    page.locator("tbody td", has_text="stopped").wait_for()
    (stopped,) = [each for each in server.post("queues/redrive/list")["redrives"] if each["status"] == "stopped"]
    assert stopped["moved"] < 20
    assert server.post("queue/stats", {"queue": "letters"})["dead"] == 23 - stopped["moved"]


def test_a_key_is_paused_and_resumed(server: Served, viewer: Viewer) -> None:
    """Other keys are not affected."""
    server.post("queues/create", {"queue": "split"})
    server.enqueue("split", "acme", 2)
    server.enqueue("split", "bakery", 2)
    page = viewer.open(server, "queue/split")
    page.get_by_label("Pause acme").click()
    page.click("#yes")
    page.get_by_label("Resume acme").wait_for()
    assert len(server.lease("split", 10)) == 2
    page.get_by_label("Resume acme").click()
    page.click("#yes")
    page.get_by_label("Pause acme").wait_for()
    assert len(server.lease("split", 10)) == 2


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """Start a server with authentication."""
    data: Path = tmp_path_factory.mktemp("guarded")
    with served(data, "--auth", "true") as server:
        yield server, (data / "admin.key").read_text().strip()


@pytest.mark.parametrize(
    ("place", "clicks", "text"),
    [
        ("queue/mine", ["[aria-label='Pause acme']", "#yes"], "has no right to admin on any queue"),
        ("queue/mine", ["[aria-label='Change the weight of acme']", "#yes"], "has no right to admin"),
        ("hooks/mine", ["#dry-run"], "has no right to admin on any queue"),
        ("hooks/mine", ["#set-hook", "#yes"], "has no right to admin on any queue"),
        ("dead/mine", ["#redrive", "#yes"], "has no right to admin on any queue"),
        ("pipeline", [], "has no right to admin"),
        ("controls", [], "has no right to observe on all queues"),
    ],
)
def test_missing_rights_are_shown(
    guarded: tuple[Served, str], browser: Browser, place: str, clicks: list[str], text: str
) -> None:
    """Each control names the missing right and changes nothing; what the API key may see is shown."""
    server, admin = guarded
    before = server.post("queues/list", key=admin)["queues"]
    if not before:
        server.post("queues/create", {"queue": "mine"}, key=admin)
        server.post("queue/enqueue", {"queue": "mine", "messages": [{"fairness_key": "acme"}] * 3}, key=admin)
    end = server.post("journal/read", {"count": 10_000}, key=admin)["position"]
    grants = [{"right": "consume", "queues": "mine"}, {"right": "consume", "queues": "mine.dlq"}]
    reader = server.post("keys/create", {"name": "reader", "grants": grants}, key=admin)["key"]
    viewer = Viewer(browser)
    page = viewer.open(server, place)
    page.fill("#key", reader)
    page.keyboard.press("Enter")
    for click in clicks:
        page.click(click)
    page.locator("#notice, main", has_text=text).first.wait_for()
    events = server.post("journal/read", {"after": end, "count": 10_000}, key=admin)["events"]
    assert {event["name"].partition(":")[0] for event in events} == {"auth"}  # the API key itself, and nothing else
    viewer.close()
