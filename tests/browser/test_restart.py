"""What happens under an open page: queues come, grow and go, and the server dies."""

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


def test_the_page_goes_over_to_what_hurts_more(tmp_path: Path, viewer: Viewer) -> None:
    """It looks closely at the worst queue, and when another is worse for a while, at that."""
    with served(tmp_path) as server:
        for queue in ("calm", "loud"):
            server.post("queues/create", {"queue": queue})
        server.enqueue("calm", "acme", 20)
        viewer.open(server)
        viewer.page.locator("h2", has_text="and why, in calm").wait_for()
        server.enqueue("loud", "bakery", 2_000)
        viewer.page.locator("h2", has_text="and why, in loud").wait_for()
        assert viewer.cells("bakery")[1] == "2,000"


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
