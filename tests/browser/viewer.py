"""A server that keeps its port, and a browser tab that records every fault in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

import httpx

from tests.kit.waiting import PATIENCE_S, wait_until
from tests.unit.client.serving import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page

PATIENCE_MS = 1_000 * PATIENCE_S


class Served(ServerProcess):
    """A server, with a client of its HTTP API."""

    @property
    def address(self) -> str:
        """The URL for a browser."""
        return self.url.replace("ws://", "http://")

    def post(self, path: str, body: object = None, *, key: str | None = None) -> Any:
        """Call a verb."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        answer = httpx.post(f"{self.address}/v1/{path}", json=body or {}, headers=headers, timeout=PATIENCE_S)
        answer.raise_for_status()
        return answer.json()

    def enqueue(self, queue: str, key: str, count: int = 1, **terms: Any) -> list[str]:
        """Enqueue messages of one key and return their ids."""
        messages = [{"fairness_key": key, **terms}] * count
        return [each["id"] for each in self.post("queue/enqueue", {"queue": queue, "messages": messages})["results"]]

    def lease(self, queue: str, count: int = 1, **terms: Any) -> list[dict[str, Any]]:
        """Lease messages and return their receipts."""
        deliveries = self.post("queue/dequeue", {"queue": queue, "count": count, **terms})["deliveries"]
        return [{"id": each["id"], "token": each["token"]} for each in deliveries]


@contextmanager
def streaming(server: Served, queue: str, **terms: Any) -> Iterator[None]:
    """Stream messages of a queue while the context lasts, from the first delivery on."""
    request = {"queue": queue, **terms}
    with httpx.stream("POST", f"{server.address}/v1/queue/subscribe", json=request, timeout=PATIENCE_S) as answer:
        lines = answer.iter_lines()  # kept in a variable: the stream ends when it is garbage-collected
        next(lines)
        yield


@contextmanager
def loaded(server: Served, queue: str) -> Iterator[None]:
    """Enqueue, lease and acknowledge while the context lasts, whether the server responds or not."""
    is_over = Event()

    def work() -> None:
        while not is_over.is_set():
            with suppress(httpx.HTTPError):
                for key, count in (("acme", 20), ("bakery", 2), ("clinic", 1)):
                    server.enqueue(queue, key, count)
                server.post("queue/ack", {"queue": queue, "receipts": server.lease(queue, 5)})

    worker = Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        is_over.set()
        worker.join()


@contextmanager
def served(data: Path, *flags: str) -> Iterator[Served]:
    """Run a server while the context lasts."""
    with Served(data, "--durability", "os", *flags) as server:
        yield server


class Viewer:
    """A tab that records what must never happen: script errors, blocked content, browser dialogs."""

    def __init__(self, browser: Browser, *, is_dark: bool = False, width: int = 1200) -> None:
        scheme: Literal["dark", "light"] = "dark" if is_dark else "light"
        self._context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._on_console)
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # an error response of the API
            self.faults.append(f"console: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, server: Served, place: str = "") -> Page:
        """Open a page of the dashboard."""
        self.page.goto(f"{server.address}/#/{place}")
        return self.page

    def cells(self, row: str) -> list[str]:
        """Return the cells of the first row that contains a text, once it appears."""
        found = self.page.locator("tbody tr", has_text=row).first
        found.wait_for()
        return found.locator("th,td").all_inner_texts()

    def shows(self, *cells: str) -> None:
        """Wait until the row that contains the first of these texts begins with all of them."""
        wait_until(lambda: self.cells(cells[0])[: len(cells)] == list(cells), what=f"the page shows {cells}")

    def drawn(self, caption: str) -> Locator:
        """Return the chart with a caption once it is drawn."""
        figure = self.page.locator("figure", has=self.page.locator("figcaption", has_text=caption))
        figure.locator(".main-svg .trace").first.wait_for(state="attached")
        return figure

    def sees(self, text: str) -> None:
        """Wait until a text is visible."""
        self.page.get_by_text(text).first.wait_for()

    def close(self) -> None:
        """Close the tab; any recorded fault fails the test."""
        self._context.close()
        assert self.faults == []
