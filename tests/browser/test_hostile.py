"""Text from messages stays text, wherever the dashboard shows it."""

from __future__ import annotations

import base64
from urllib.parse import quote

from tests.browser.viewer import Served, Viewer, streaming

HOSTILE = (
    "<script>window.owned = 1; alert('owned')</script><img src=x onerror=\"window.owned = 1\">"
    "{{7*7}}'\"><svg onload=alert(1)>"
)
MADE = "[window.owned, document.querySelectorAll('main script, main img, main svg[onload]').length]"


def test_markup_in_a_message_does_not_run(server: Served, viewer: Viewer) -> None:
    """Markup in key, headers, payload, error, correlation id, throttle, owner and config is shown and does not run."""
    server.post("queues/create", {"queue": "open"})
    server.post("config/set", {"values": {f"note:{HOSTILE}": HOSTILE}})
    terms = {
        "headers": {"x": HOSTILE, HOSTILE[:100]: "y"},
        "payload": base64.b64encode(HOSTILE.encode()).decode(),
        "correlation_id": HOSTILE[:128],
    }
    dead, _ = server.enqueue("open", HOSTILE, 2, **terms)
    receipts = server.lease("open", owner=HOSTILE)
    server.post("queue/state/put", {"queue": "open", "receipt": receipts[0], "state": terms["payload"]})
    server.post("queue/nack", {"queue": "open", "receipts": receipts, "intent": "dead", "error": HOSTILE})
    for place, shown in (
        ("", "Fairness keys of"),
        ("access", "API keys"),
        ("schedules", "Create a schedule"),
        ("queue/open", HOSTILE),
        ("messages/open", HOSTILE),
        (f"message/open.dlq/{dead}", HOSTILE),
        ("dead/open", HOSTILE),
        ("controls", HOSTILE),
        ("hooks/open", "Hooks of open"),
        (f"message/-/{quote(HOSTILE[:128], safe='')}", "2 messages have this correlation id"),
        (f"queue/{HOSTILE.replace('/', '%2F')}", "Not found"),
        (f"message/{HOSTILE.replace('/', '%2F')}/{dead}", "History"),
    ):
        page = viewer.open(server, place)
        page.reload()
        page.get_by_text(shown, exact=False).first.wait_for()
        assert page.evaluate(MADE) == [None, 0]


def test_markup_in_a_key_does_not_run_in_a_chart(server: Served, viewer: Viewer) -> None:
    """Keys in tables, charts and the words below them are text."""
    server.post("queues/create", {"queue": "drawn"})
    page = viewer.open(server, "queue/drawn")
    viewer.sees("No backlog")
    server.enqueue("drawn", f"<b>{HOSTILE}", 4)
    server.enqueue("drawn", "<a href='javascript:alert(1)'>acme</a>", 4)
    with streaming(server, "drawn", credit=2, owner=HOSTILE):
        page.locator("figure .legend", has_text="<script>").first.wait_for()
        assert viewer.cells(HOSTILE[:20])
        assert page.locator("figure a").count() == 0
        assert page.evaluate(MADE) == [None, 0]
