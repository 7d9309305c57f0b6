"""The example of a shop: its own tests pass, and it runs as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

from tests.kit.waiting import PATIENCE_S, wait_until
from tests.unit.client.serving import ServerProcess, free_port

SHOP = Path(__file__).parents[2] / "examples" / "shop"
LINES_MAX = 200


def test_the_shop_is_short() -> None:
    """The whole service, tests included, has at most 200 lines."""
    assert sum(len(file.read_text().splitlines()) for file in SHOP.glob("*.py")) <= LINES_MAX


def test_the_tests_of_the_shop_pass() -> None:
    """The tests that the example shows run without a server."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=SHOP, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout


def ask(url: str, body: dict[str, object] | None = None, method: str = "POST") -> Any:
    """Return the answer of the web service."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or b"null")


def is_up(url: str) -> bool:
    with suppress(URLError):
        urllib.request.urlopen(f"{url}/openapi.json").close()
        return True
    return False


def test_the_shop_runs() -> None:
    """Web service and worker start before the server; an order is charged, a report shows its progress until it is
    cancelled, and the worker ends gracefully.
    """
    port = free_port()
    url, server = f"http://127.0.0.1:{port}", ServerProcess()
    environment = {**os.environ, "FAIRLANE_SERVER": server.url}
    web = [sys.executable, "-m", "uvicorn", "web:web", "--port", str(port), "--log-level", "error"]
    worker = [sys.executable, "-m", "fairlane", "worker", "jobs:app"]
    processes = [
        subprocess.Popen(command, cwd=SHOP, env=environment, stderr=subprocess.PIPE, text=True)
        for command in (web, worker)
    ]
    try:
        wait_until(lambda: is_up(url), what="the web service listens")
        with server:
            order = {"id": 7, "tenant": "acme", "cents": 999, "card": "4242"}
            job = ask(f"{url}/orders", order)["job"]
            status = f"{url}/jobs/charge/{job}"
            wait_until(lambda: ask(status, method="GET")["status"] == "done", what="the order is charged")
            assert ask(status, method="GET")["result"] == "charged 999 cents"
            report = f"{url}/jobs/report/{ask(f'{url}/reports/acme?pages=1000')['job']}"
            wait_until(lambda: ask(report, method="GET")["progress"], what="the report shows its progress")
            assert 0 < ask(report, method="GET")["progress"] < 1
            ask(report, method="DELETE")
            processes[1].send_signal(signal.SIGTERM)
            _, told = processes[1].communicate(timeout=PATIENCE_S)
            assert processes[1].returncode == 0
            assert "Worker stopped: 2 handled, 0 failed." in told
    finally:
        for process in processes:
            process.kill()
            process.communicate()
