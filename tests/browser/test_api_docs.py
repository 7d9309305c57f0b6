"""The documentation of the API in the browser: by task, with examples, and requests that can be sent."""

from __future__ import annotations

from tests.browser.viewer import Served, Viewer


def test_the_api_is_documented_by_task_with_examples_to_try(server: Served, viewer: Viewer) -> None:
    """Messages come first; an operation explains its fields, has a command, and is sent from the page."""
    server.post("queues/create", {"queue": "orders"})
    page = viewer.page
    page.goto(f"{server.address}/docs")
    page.locator("h2").first.wait_for()
    topics = page.locator("section h2").all_inner_texts()
    assert topics[:2] == ["Messages", "Leases"]
    assert topics.index("Queues") < topics.index("Cluster")
    enqueue = page.locator("details#enqueue")
    enqueue.locator("summary").first.click()
    enqueue.locator(".command code", has_text=f"curl {server.address}/v1/queue/enqueue").wait_for()
    assert (
        enqueue.locator("tbody tr", has_text="wait_ms").locator("td").last.inner_text().startswith("How long to wait")
    )
    assert (
        enqueue.locator("tbody tr", has_text="queue").first.locator("td").last.inner_text() == "The name of the queue."
    )
    enqueue.get_by_role("button", name="Send POST to this server").click()
    enqueue.locator("pre", has_text='"results"').wait_for()
    enqueue.locator("p", has_text="200 OK in").wait_for()
    assert server.post("queue/stats", {"queue": "orders"})["waiting"] == 1
    page.fill("#filter", "redrive")
    assert page.locator("details.operation:visible").count() == 4
    page.goto(f"{server.address}/docs#create_queue")
    page.reload()
    page.locator("details#create_queue[open]").wait_for()
