"""A server that dies under an open page."""

from __future__ import annotations

from pathlib import Path

from tests.browser.viewer import Viewer, loaded, served


def test_a_queue_that_is_deleted_leaves_the_others(tmp_path: Path, viewer: Viewer) -> None:
    """The page looked at it more closely than at the others, and goes on with the next."""
    with served(tmp_path) as server:
        for queue, count in (("first", 30), ("second", 2)):
            server.post("queues/create", {"queue": queue})
            server.enqueue(queue, f"key of {queue}", count)
        page = viewer.open(server)
        viewer.sees("key of first")
        server.post("queues/delete", {"queue": "first"})
        viewer.sees("key of second")
        assert page.locator("tbody a[href^='#/queue/']").all_inner_texts() == ["second"]


def test_the_page_comes_back_with_the_server(tmp_path: Path, viewer: Viewer) -> None:
    """The page says that it has lost the server, and goes on by itself with what the new one says."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "orders"})
        server.enqueue("orders", "acme", 3)
        page = viewer.open(server, "queue/orders")
        assert viewer.cells("acme")[1] == "3"
        server.kill()
        page.locator("#state", has_text="reconnecting").wait_for()
        server.start()
        server.enqueue("orders", "acme", 4)
        page.locator("#state", has_text="live").wait_for()
        page.locator("tbody td", has_text="7").first.wait_for()


def test_a_page_under_load_lives_through_a_crash(tmp_path: Path, viewer: Viewer) -> None:
    """While messages come and go the server is killed and started again, and the numbers and charts go on."""
    with served(tmp_path) as server:
        server.post("queues/create", {"queue": "busy"})
        with loaded(server, "busy"):
            page = viewer.open(server, "queue/busy")
            viewer.sees("acme is noisy")
            viewer.drawn("Messages a second")
            server.kill()
            page.locator("#state", has_text="reconnecting").wait_for()
            server.start()
            page.locator("#state", has_text="live").wait_for()
            viewer.sees("seen so far")
            viewer.sees("acme is noisy")
