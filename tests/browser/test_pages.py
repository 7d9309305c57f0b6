"""Each page of the dashboard shows what the API returns, and its controls work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.viewer import Served, Viewer, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_queues(server: Served, viewer: Viewer) -> None:
    """All queues are listed, the most affected first, with the noisy key of that one."""
    server.post("queues/create", {"queue": "calm"})
    server.post("queues/create", {"queue": "full"})
    server.enqueue("full", "acme", 50)
    server.enqueue("full", "bakery", 2)
    page = viewer.open(server)
    viewer.shows("full", "no consumers", "52", "0")
    viewer.sees("This queue has no consumers.")
    assert page.locator("tbody tr").first.locator("th").inner_text() == "full"
    viewer.shows("calm", "healthy", "0", "0")
    assert page.locator("#state").inner_text() == "live"
    server.lease("full", 10)
    viewer.sees("acme is noisy: it sends 95 % of all work. It receives 80 % of the service and is entitled to 80 %.")


def test_queue(server: Served, viewer: Viewer) -> None:
    """Each key has its share, wait and wait reason, including the throttle that limits it; search finds a key."""
    server.post("queues/create", {"queue": "mail"})
    server.post("config/set", {"values": {"throttle:smtp:burst": "1", "throttle:smtp:rate": "0.001"}})
    page = viewer.open(server, "queue/mail")
    viewer.sees("No backlog.")
    server.enqueue("mail", "acme", 30)
    server.enqueue("mail", "bakery", 30)
    server.enqueue("mail", "post", 5, throttles=["smtp"])
    server.lease("mail", 21)
    viewer.shows("acme", "20", "48 %, entitled 48 %")
    viewer.shows("bakery", "20", "48 %, entitled 48 %")
    viewer.shows("post", "4")
    assert viewer.cells("post")[3] == "throttle smtp: 0.001/s, 4 waiting, about 1 h 6 min"
    viewer.sees("Jain index 1.000")
    assert page.locator(".facts dd").all_inner_texts()[:2] == ["44", "21"]
    server.post("queue/consumer/register", {"queue": "mail", "consumer": "etl"})
    viewer.shows("etl", "0", "0")
    page.fill("#search", "ost")
    page.locator("tbody tr", has_text="acme").wait_for(state="detached")
    assert viewer.cells("post")[0] == "post"


def test_message(server: Served, viewer: Viewer) -> None:
    """A message found by its id is shown with its history, content and wait reason."""
    server.post("queues/create", {"queue": "orders", "policy": {"backoff_ms": 0}})
    (message_id,) = server.enqueue("orders", "acme", payload="aGVsbG8=", headers={"kind": "new"})
    receipts = server.lease("orders")
    server.post("queue/nack", {"queue": "orders", "receipts": receipts, "error": "no ink"})
    page = viewer.open(server, "message")
    page.fill("#id", message_id)
    page.click("text=Look up")
    viewer.sees("no consumer is asking")
    assert page.locator("#history b").all_inner_texts() == ["enqueued", "leased", "returned"]
    assert page.locator("#payload").text_content() == "hello"
    assert page.locator(".errors code").inner_text() == "no ink"
    server.post("queue/ack", {"queue": "orders", "receipts": server.lease("orders")})
    page.reload()
    viewer.sees("No longer in a queue: it was acknowledged.")


def test_a_running_message_is_followed(server: Served, viewer: Viewer) -> None:
    """Its progress appears as the worker reports it; when the attempt has failed, so do its worker and traceback."""
    server.post("queues/create", {"queue": "films", "policy": {"backoff_ms": 0}})
    (message_id,) = server.enqueue("films", "acme")
    (receipt,) = server.lease("films")
    page = viewer.open(server, f"message/films/{message_id}")
    page.locator("#progress", has_text="\N{EN DASH}").wait_for()
    for fraction, note, told in ((0.25, "reel 1", "25 % reel 1"), (0.5, "", "50 %")):
        progress = {"queue": "films", "receipt": receipt, "fraction": fraction, "note": note}
        server.post("queue/progress", progress)
        page.locator("#progress", has_text=told).wait_for()
    detail = {"traceback": "File film.py, line 7", "worker": "w1", "host": "h1"}
    server.post("queue/nack", {"queue": "films", "receipts": [receipt], "error": "torn", "detail": detail})
    viewer.sees("no consumer is asking")
    assert "failure on w1" in page.locator(".errors li").inner_text()
    page.click("text=Traceback")
    assert page.locator(".errors pre").inner_text() == "File film.py, line 7"


def test_dead_letters(server: Served, viewer: Viewer) -> None:
    """Dead letters are grouped by error; a dry run moves nothing, a confirmed redrive moves one group."""
    server.post("queues/create", {"queue": "jobs"})
    server.enqueue("jobs", "acme", 5)
    receipts = server.lease("jobs", 5)
    for error, some in (("no ink", receipts[:3]), ("no paper", receipts[3:])):
        server.post("queue/nack", {"queue": "jobs", "receipts": some, "intent": "dead", "error": error})
    page = viewer.open(server, "dead/jobs")
    assert viewer.cells("no ink") == ["no ink", "requested", "3", "acme"]
    page.click("button:text('no ink')")
    page.click("#dry")
    assert viewer.cells("dry run")[1:6] == ["dry run", "done", "5 of 5", "3", "0"]
    page.click("#redrive")
    page.click("#no")
    assert server.post("queue/stats", {"queue": "jobs"})["dead"] == 5
    page.click("#redrive")
    page.click("#yes")
    viewer.sees("2 dead letters of jobs")
    stats = server.post("queue/stats", {"queue": "jobs"})
    assert (stats["waiting"], stats["dead"]) == (3, 2)


def test_dead_letters_in_a_queue_that_the_policy_names(server: Served, viewer: Viewer) -> None:
    """A queue whose dead letters go to a shared queue shows, retries and deletes its own, and the shared queue all."""
    server.post("queues/create", {"queue": "failures"})
    server.enqueue("failures", "own")
    for name in ("post", "fax"):
        server.post("queues/create", {"queue": name, "policy": {"dead_letter_queue": "failures"}})
        server.enqueue(name, "acme", 2)
        receipts = server.lease(name, 2)
        server.post("queue/nack", {"queue": name, "receipts": receipts, "intent": "dead", "error": f"no {name}"})
    page = viewer.open(server, "dead/failures")
    viewer.sees("4 dead letters in failures")
    viewer.open(server, "dead/post")
    viewer.sees("2 dead letters of post, in failures")
    assert viewer.cells("no post")[:3] == ["no post", "requested", "2"]
    assert page.locator("tbody tr", has_text="no fax").count() == 0
    page.click("#delete-matching")
    page.click("#yes")
    viewer.sees("0 dead letters of post, in failures")
    viewer.open(server, "dead/fax")
    page.get_by_text("Retry", exact=True).first.click()
    page.click("#yes")
    viewer.sees("1 dead letters of fax, in failures")
    assert server.post("queue/stats", {"queue": "fax"})["waiting"] == 1
    assert server.post("queue/stats", {"queue": "failures"})["waiting"] == 2


def test_controls(server: Served, viewer: Viewer) -> None:
    """Pausing a queue, setting a weight and a throttle need a confirmation and appear in the changes."""
    server.post("queues/create", {"queue": "steered"})
    server.enqueue("steered", "acme", 3)
    page = viewer.open(server, "queue/steered")
    page.click("#pause")
    page.keyboard.press("Escape")
    assert server.post("queue/stats", {"queue": "steered"})["is_paused"] is False
    page.click("#pause")
    page.click("#yes")
    page.locator("#pause", has_text="Resume queue").wait_for()
    assert server.post("queue/stats", {"queue": "steered"})["is_paused"] is True
    page.get_by_label("Change the weight of acme").click()
    page.get_by_label("Weight", exact=True).fill("7")
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="7", exact=True).wait_for()
    assert viewer.cells("acme")[7] == "7"
    page.goto(f"{server.address}/#/controls")
    for place, text in (("#throttle", "calls"), ("#rate", "5"), ("#burst", "2")):
        page.fill(place, text)
    page.click("text=Set throttle")
    page.click("#yes")
    assert viewer.cells("calls")[:3] == ["calls", "5", "2"]
    viewer.sees("queue steered paused")
    viewer.sees("weight:steered:acme = 7")


def test_keys_and_rights(tmp_path: Path, browser: Browser) -> None:
    """A wrong API key cannot log in; one with few rights sees its queue and which right is missing."""
    with served(tmp_path, "--auth", "true") as server:
        admin = (tmp_path / "admin.key").read_text().strip()
        server.post("queues/create", {"queue": "mine"}, key=admin)
        server.post("queues/create", {"queue": "theirs"}, key=admin)
        grants = [{"right": "consume", "queues": "mine"}, {"right": "admin", "queues": "elsewhere"}]
        reader = server.post("keys/create", {"name": "reader", "grants": grants}, key=admin)["key"]
        viewer = Viewer(browser)
        page = viewer.open(server)
        page.fill("#key", "fl_wrong_key")
        page.keyboard.press("Enter")
        page.get_by_role("alert").first.wait_for()
        page.fill("#key", reader)
        page.keyboard.press("Enter")
        assert viewer.cells("mine")[0] == "mine"
        assert page.locator("tbody a[href^='#/queue/']").all_inner_texts() == ["mine"]
        page.goto(f"{server.address}/#/queue/mine")
        page.click("#pause")
        page.click("#yes")
        viewer.sees("has no right to admin on queue 'mine'")
        page.goto(f"{server.address}/#/queue/theirs")
        viewer.sees("Not allowed")
        assert browser_storage(page) == ["fairlane.key"]
        viewer.close()


def browser_storage(page: object) -> list[str]:
    """Return the names of everything a tab stores, including cookies and storage that outlives it."""
    found: list[str] = page.evaluate(  # type: ignore[attr-defined] # playwright may not be installed
        "[...Object.keys(sessionStorage), ...Object.keys(localStorage), ...document.cookie.split(';').filter(Boolean)]"
    )
    return found
