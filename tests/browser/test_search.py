"""What operators search for: messages by correlation id, workflow state, consumers, charts, one key of many."""

from __future__ import annotations

import base64

from tests.browser.viewer import Served, Viewer, streaming


def test_a_message_is_found_by_its_correlation_id(server: Served, viewer: Viewer) -> None:
    """A single match is shown, several are listed, and without a match the page says so."""
    server.post("queues/create", {"queue": "parcels"})
    (one,) = server.enqueue("parcels", "acme", correlation_id="order-1")
    two = server.enqueue("parcels", "acme", 2, correlation_id="beef")  # it looks like a message id and is none
    page = viewer.open(server, "message")
    page.fill("#id", "order-1")
    page.click("text=Look up")
    viewer.sees("no consumer is asking")
    assert page.locator(".facts dd", has_text="order-1").count() == 1
    assert page.locator("#history b").all_inner_texts() == ["enqueued"]
    page.fill("#id", "beef")
    page.click("text=Look up")
    viewer.sees("2 messages have this correlation id")
    assert sorted(page.locator("#found tbody th").all_inner_texts()) == sorted(two)
    assert one not in page.locator("#found").inner_text()
    page.click(f"a:text('{two[0]}')")
    viewer.sees("History")
    page.fill("#id", "order-9")
    page.click("text=Look up")
    viewer.sees("No message in the journal has this correlation id.")


def test_workflow_state_is_shown(server: Served, viewer: Viewer) -> None:
    """The page shows the state that a handler stored with the message, with its version."""
    server.post("queues/create", {"queue": "steps"})
    (message_id,) = server.enqueue("steps", "acme")
    state = base64.b64encode(b'{"step": 2}').decode()
    (receipt,) = server.lease("steps")
    etag = server.post("queue/state/put", {"queue": "steps", "receipt": receipt, "state": state})["etag"]
    page = viewer.open(server, f"message/steps/{message_id}")
    assert page.locator("#workflow").inner_text() == '{"step": 2}'
    viewer.sees(f"Version {etag}")


def test_streaming_consumers_are_shown(server: Served, viewer: Viewer) -> None:
    """Each has its name, its credit, its messages in flight, and the age of its oldest lease."""
    server.post("queues/create", {"queue": "streamed"})
    server.enqueue("streamed", "acme", 5)
    with streaming(server, "streamed", credit=3, owner="press"):
        viewer.open(server, "queue/streamed")
        name, credit, leased, age = viewer.cells("press")
        assert (name, credit, leased) == ("press", "3", "3")
        assert age.endswith("s")
    viewer.page.locator("tbody th", has_text="press").wait_for(state="hidden")


def test_charts_need_no_package(server: Served, viewer: Viewer) -> None:
    """Rates and backlog of the last minutes are drawn without Plotly, each with a summary for screen readers."""
    server.post("queues/create", {"queue": "charted"})
    viewer.page.route("**/dashboard/plotly.js", lambda route: route.fulfill(status=404))
    page = viewer.open(server, "queue/charted")
    viewer.sees("No backlog.")
    server.enqueue("charted", "acme", 6)
    server.post("queue/ack", {"queue": "charted", "receipts": server.lease("charted", 4)})
    page.click("text=Last 5 minutes")
    page.locator("#history-charts path.line.s1").first.wait_for(state="attached")
    page.locator("svg[role=img][aria-label*='waiting 2, in flight 0']").wait_for()


def test_ten_thousand_keys_stay_usable(server: Served, viewer: Viewer) -> None:
    """The page shows the top keys in each order, and search finds one that is not among them."""
    server.post("queues/create", {"queue": "crowd"})
    for first in range(0, 10_000, 1_000):
        messages = [{"fairness_key": f"tenant-{number}"} for number in range(first, first + 1_000)]
        server.post("queue/enqueue", {"queue": "crowd", "messages": messages})
    server.enqueue("crowd", "tenant-77", 5)
    page = viewer.open(server, "queue/crowd")
    viewer.sees("10,000 active keys")
    assert page.locator("table", has_text="wait reason").locator("tbody th").first.inner_text() == "tenant-77"
    page.select_option("#sort", "share")
    page.select_option("#sort", "wait")
    page.fill("#search", "tenant-9876")
    page.locator("tbody tr", has_text="tenant-77").wait_for(state="detached")
    viewer.shows("tenant-9876", "1")
