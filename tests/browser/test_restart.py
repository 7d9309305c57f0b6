"""An open page while queues appear, grow and disappear, and while the server crashes."""

from __future__ import annotations

from pathlib import Path

from tests.browser.viewer import Viewer, loaded, served


def test_a_deleted_queue_disappears(tmp_path: Path, viewer: Viewer) -> None:
    """If it was the watched queue, the page watches the next one."""
    with served(tmp_path) as server:
        for queue, count in (("first", 30), ("second", 2)):
            server.post("queues/create", {"queue": queue})
            server.enqueue(queue, f"key of {queue}", count)
        page = viewer.open(server)
        viewer.sees("key of first")
        server.post("queues/delete", {"queue": "first"})
        viewer.sees("key of second")
        assert page.locator("tbody a[href^='#/queue/']").all_inner_texts() == ["second"]


def test_the_page_switches_to_the_most_affected_queue(tmp_path: Path, viewer: Viewer) -> None:
    """It watches the most affected queue, and switches when another is worse for a while."""
    with served(tmp_path) as server:
        for queue in ("calm", "loud"):
            server.post("queues/create", {"queue": queue})
        server.enqueue("calm", "acme", 20)
        viewer.open(server)
        viewer.page.locator("h2", has_text="Fairness keys of calm").wait_for()
        server.enqueue("loud", "bakery", 2_000)
        viewer.page.locator("h2", has_text="Fairness keys of loud").wait_for()
        viewer.shows("bakery", "2,000")


def test_the_page_reconnects_after_a_restart(tmp_path: Path, viewer: Viewer) -> None:
    """The page says that it is reconnecting, and continues with the state of the restarted server."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "orders"})
        server.enqueue("orders", "acme", 3)
        page = viewer.open(server, "queue/orders")
        viewer.shows("acme", "3")
        server.kill()
        page.locator("#state", has_text="reconnecting").wait_for()
        server.start()
        server.enqueue("orders", "acme", 4)
        page.locator("#state", has_text="live").wait_for()
        page.locator("tbody td", has_text="7").first.wait_for()


def test_a_page_under_load_survives_a_crash(tmp_path: Path, viewer: Viewer) -> None:
    """The server is killed and restarted under load, and numbers and charts continue."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "busy"})
        with loaded(server, "busy"):
            page = viewer.open(server, "queue/busy")
            viewer.sees("acme is noisy")
            page.locator("#history-charts svg path, #history-charts svg circle").first.wait_for(state="attached")
            server.kill()
            page.locator("#state", has_text="reconnecting").wait_for()
            server.start()
            page.locator("#state", has_text="live").wait_for()
            viewer.sees("observed so far")
            viewer.sees("acme is noisy")
