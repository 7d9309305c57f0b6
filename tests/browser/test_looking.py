"""What an operator looks for: a message by its correlation id, its state, consumers, charts, and one key of many."""

from __future__ import annotations

import base64

from tests.browser.viewer import Served, Viewer, streaming


def test_a_message_is_found_by_its_correlation_id(server: Served, viewer: Viewer) -> None:
    """One that alone has it is shown, several are listed, and none is told."""
    server.post("queues/create", {"queue": "parcels"})
    (one,) = server.enqueue("parcels", "acme", correlation_id="order-1")
    two = server.enqueue("parcels", "acme", 2, correlation_id="beef")  # it could be an id, and is none
    page = viewer.open(server, "message")
    page.fill("#id", "order-1")
    page.click("text=Look up")
    viewer.sees("no consumer is asking")
    assert page.locator(".facts dd", has_text="order-1").count() == 1
    assert page.locator("#life b").all_inner_texts() == ["enqueued"]
    page.fill("#id", "beef")
    page.click("text=Look up")
    viewer.sees("2 messages have this correlation id")
    assert sorted(page.locator("#found tbody th").all_inner_texts()) == sorted(two)
    assert one not in page.locator("#found").inner_text()
    page.click(f"a:text('{two[0]}')")
    viewer.sees("Its life")
    page.fill("#id", "order-9")
    page.click("text=Look up")
    viewer.sees("The journal knows no message with this correlation id.")


def test_workflow_state_is_shown(server: Served, viewer: Viewer) -> None:
    """What a handler has kept beside the message is there, with its version."""
    server.post("queues/create", {"queue": "steps"})
    (message_id,) = server.enqueue("steps", "acme")
    state = base64.b64encode(b'{"step": 2}').decode()
    (receipt,) = server.lease("steps")
    etag = server.post("queue/state/put", {"queue": "steps", "receipt": receipt, "state": state})["etag"]
    page = viewer.open(server, f"message/steps/{message_id}")
    assert page.locator("#workflow").inner_text() == '{"step": 2}'
    viewer.sees(f"Version {etag}")


def test_consumers_are_shown_with_credit_and_lease(server: Served, viewer: Viewer) -> None:
    """Who messages are streamed to, how many it may have, how many it has, and how old the oldest lease is."""
    server.post("queues/create", {"queue": "streamed"})
    server.enqueue("streamed", "acme", 5)
    with streaming(server, "streamed", credit=3, owner="press"):
        viewer.open(server, "queue/streamed")
        name, credit, leased, age = viewer.cells("press")
        assert (name, credit, leased) == ("press", "3", "3")
        assert age.endswith("s")
    viewer.page.locator("tbody th", has_text="press").wait_for(state="hidden")


def test_charts_are_drawn_by_the_package_the_reports_use(server: Served, viewer: Viewer) -> None:
    """Rates, what waits, and shares are drawn, each with words for those who don't see them."""
    server.post("queues/create", {"queue": "charted"})
    page = viewer.open(server, "queue/charted")
    viewer.sees("Nobody waits.")
    server.enqueue("charted", "acme", 6)
    server.enqueue("charted", "bakery", 2)
    server.post("queue/ack", {"queue": "charted", "receipts": server.lease("charted", 4)})
    assert viewer.drawn("Messages a second").locator(".scatterlayer .trace").count() == 4
    assert viewer.drawn("Messages waiting").locator(".scatterlayer .trace").count() == 2
    assert viewer.drawn("Shares of the busiest keys").locator(".barlayer .trace").count() == 2
    page.locator("[role=img][aria-label*='acme 50 of 50 per cent']").wait_for()
    assert page.evaluate("Plotly.version.length") > 0


def test_without_the_package_the_page_says_so_and_works(server: Served, viewer: Viewer) -> None:
    """A server without plotly has no such script; tables, words and controls are there all the same."""
    server.post("queues/create", {"queue": "bare"})
    server.enqueue("bare", "acme", 3)
    viewer.page.route("**/dashboard/plotly.js", lambda route: route.fulfill(status=404))
    viewer.open(server, "queue/bare")
    viewer.sees("There are no charts: the server has no package plotly")
    assert viewer.cells("acme")[1] == "3"


def test_ten_thousand_keys_stay_usable(server: Served, viewer: Viewer) -> None:
    """The page has the top of them, in each order, and search finds one that is not among these."""
    server.post("queues/create", {"queue": "crowd"})
    for first in range(0, 10_000, 1_000):
        messages = [{"fairness_key": f"tenant-{number}"} for number in range(first, first + 1_000)]
        server.post("queue/enqueue", {"queue": "crowd", "messages": messages})
    server.enqueue("crowd", "tenant-77", 5)
    page = viewer.open(server, "queue/crowd")
    viewer.sees("10,000 active keys")
    assert page.locator("table", has_text="why it waits").locator("tbody th").first.inner_text() == "tenant-77"
    page.select_option("#sort", "share")
    page.select_option("#sort", "wait")
    page.fill("#search", "tenant-9876")
    page.locator("tbody tr", has_text="tenant-77").wait_for(state="detached")
    assert viewer.cells("tenant-9876")[1] == "1"
