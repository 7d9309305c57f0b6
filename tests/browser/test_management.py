"""Queues, policies, API keys, schedules, dead letters and messages are managed on the dashboard."""

from __future__ import annotations

from tests.browser.viewer import Served, Viewer
from tests.kit.waiting import wait_until


def test_a_queue_is_created_edited_and_deleted(server: Served, viewer: Viewer) -> None:
    """Faults are shown in the form, and deleting needs the name of the queue."""
    page = viewer.open(server)
    page.goto(f"{server.address}/#/create")
    page.fill("#queue-name", "shop/orders")
    page.click("#save")
    page.locator("form [role=alert]").wait_for()
    page.fill("#queue-name", "shop")
    page.fill("#policy-visibility_timeout_ms", "2m")
    page.fill("#policy-max_attempts", "3")
    page.fill("#policy-more", '{"weights": {"acme": 5}}')
    page.click("#save")
    page.locator("h1", has_text="Queue shop").wait_for()
    policy = server.post("queue/stats", {"queue": "shop"})["policy"]
    assert [policy[name] for name in ("visibility_timeout_ms", "max_attempts")] == [120_000, 3]
    assert policy["weights"] == {"acme": 5}
    page.click("main a:text-is('Policy')")
    wait_until(lambda: page.input_value("#policy-visibility_timeout_ms") == "2m", what="the policy is loaded")
    page.fill("#policy-max_attempts", "7")
    page.fill("#policy-more", "{}")
    page.click("#save")
    page.locator("h1", has_text="Queue shop").wait_for()
    policy = server.post("queue/stats", {"queue": "shop"})["policy"]
    assert (policy["max_attempts"], policy["weights"], policy["visibility_timeout_ms"]) == (7, {}, 120_000)
    server.enqueue("shop", "acme", 2)
    for button, text in (("#purge", "shop"), ("#delete", "shop")):
        page.click(button)
        page.fill("#typed", "sho")
        page.click("#yes")
        assert page.locator("dialog[open]").count() == 1
        page.fill("#typed", text)
        page.click("#yes")
        page.locator("dialog[open]").wait_for(state="detached")
    page.locator("h1", has_text="Queues").wait_for()
    assert "shop" not in [each["name"] for each in server.post("queues/list")["queues"]]


def test_an_api_key_is_created_and_revoked(server: Served, viewer: Viewer) -> None:
    """It is shown once, with its rights."""
    page = viewer.open(server, "access")
    page.fill("#key-name", "billing")
    page.select_option("#key-right", "produce")
    page.fill("#key-queues", "bills*")
    page.fill("#key-tenants", "acme, bakery")
    page.select_option("#key-expires", "in 30 days")
    page.click("#create-key")
    page.locator(".made code", has_text="fl_").wait_for()
    assert viewer.cells("billing")[1] == "produce on bills*, keys acme, bakery"
    assert viewer.cells("billing")[3] in ("in 29 d", "in 30 d")
    page.get_by_label("Revoke billing").click()
    page.click("#yes")
    page.locator("tbody tr", has_text="billing").wait_for(state="detached")
    assert [each["name"] for each in server.post("keys/list")["keys"]] == []


def test_a_schedule_is_created_edited_run_and_deleted(server: Served, viewer: Viewer) -> None:
    """Its message and expression are kept when only one of them is edited."""
    server.post("queues/create", {"queue": "reports"})
    page = viewer.open(server, "schedules/reports")
    for place, text in (("name", "nightly"), ("cron", "0 7 * * mon-fri"), ("timezone", "Europe/Berlin")):
        page.fill(f"#schedule-{place}", text)
    page.fill("#schedule-payload", "a report")
    page.click("#save-schedule")
    assert viewer.cells("nightly")[1:3] == ["reports", "0 7 * * mon-fri (Europe/Berlin)"]
    page.get_by_label("Edit nightly of reports").click()
    page.fill("#schedule-key", "acme/eu")
    page.click("#save-schedule")
    page.get_by_label("Pause nightly of reports").click()
    page.get_by_label("Resume nightly of reports").click()
    page.get_by_label("Pause nightly of reports").wait_for()
    page.get_by_label("Run nightly of reports").click()
    page.click("#yes")
    wait_until(lambda: server.post("queue/stats", {"queue": "reports"})["waiting"] == 1, what="it has run")
    (message,) = server.post("queue/peek", {"queue": "reports", "with_body": True})["messages"]
    assert (message["fairness_key"], message["payload"]) == (["acme", "eu"], "YSByZXBvcnQ=")
    page.get_by_label("Delete nightly of reports").click()
    page.click("#yes")
    viewer.sees("No schedule enqueues into reports.")


def test_dead_letters_are_retried_and_deleted(server: Served, viewer: Viewer) -> None:
    """One by one, as a selection, and all that match a filter."""
    server.post("queues/create", {"queue": "jobs2"})
    server.enqueue("jobs2", "acme", 6)
    server.enqueue("jobs2", "bakery", 4)
    receipts = server.lease("jobs2", 10)
    nack = {"queue": "jobs2", "receipts": receipts, "intent": "dead", "error": "no ink"}
    server.post("queue/nack", nack)
    first, second, third = [each["id"] for each in receipts[:3]]

    def left(waiting: int, dead: int) -> None:
        def is_so() -> bool:
            stats = server.post("queue/stats", {"queue": "jobs2"})
            return (stats["waiting"], stats["dead"]) == (waiting, dead)

        wait_until(is_so, what=f"{waiting} wait and {dead} are dead")
        viewer.sees(f"{dead} dead letters of jobs2")

    page = viewer.open(server, "dead/jobs2")
    page.get_by_label(f"Retry {first}").click()
    page.click("#yes")
    left(1, 9)
    page.get_by_label(f"Select {second}").check()
    page.get_by_label(f"Select {third}").check()
    page.click("#delete-selected")
    page.click("#yes")
    left(1, 7)
    page.fill("#letter-key", "bakery")
    rest = [each["id"] for each in server.post("queue/peek", {"queue": "jobs2.dlq", "count": 99})["messages"]]
    bakery = server.post("queue/peek", {"queue": "jobs2.dlq", "wanted": {"fairness_key": "bakery"}, "count": 99})
    page.click("#delete-matching")
    page.click("#yes")
    left(1, len(rest) - len(bakery["messages"]))
    page.fill("#letter-key", "")
    page.get_by_label("Select all rows of this page").check()
    page.click("#retry-selected")
    page.click("#yes")
    left(1 + len(rest) - len(bakery["messages"]), 0)


def test_messages_are_cancelled(server: Served, viewer: Viewer) -> None:
    """A selection of a list, and one on its own page."""
    server.post("queues/create", {"queue": "mistakes"})
    first, second, third = server.enqueue("mistakes", "acme", 3)
    page = viewer.open(server, "messages/mistakes")
    page.get_by_label(f"Select {first}").check()
    page.get_by_label(f"Select {second}").check()
    page.click("#cancel")
    page.click("#yes")
    page.locator("tbody tr", has_text=first).wait_for(state="detached")
    page.click(f"a:text('{third}')")
    page.click("#cancel")
    page.click("#yes")
    viewer.sees("No longer in a queue: it was removed.")
    assert server.post("queue/stats", {"queue": "mistakes"})["waiting"] == 0
