"""The server on stores that outlive its machine: killed, stopped and taken over from."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BUCKET
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.kit.waiting import wait_until

from .server_process import ROOT, HttpClient, ServerProcess, serving

HELLO = base64.b64encode(b"hello").decode()
HEARTBEAT_TIMEOUT_MS = 3_000


@pytest.fixture(params=["postgres", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("durable_postgres")
        return f"{postgres.url}&namespace={tmp_path.name}&heartbeat_timeout_ms={HEARTBEAT_TIMEOUT_MS}"
    s3: S3Server = request.getfixturevalue("s3")
    return s3.url(BUCKET, tmp_path.name) + f"&window_ms=1&heartbeat_timeout_ms={HEARTBEAT_TIMEOUT_MS}"


def enqueue(http: HttpClient, count: int = 1) -> list[str]:
    answer = http.post("/queue/enqueue", json={"queue": "orders", "messages": [{"payload": HELLO}] * count})
    return [result["id"] for result in answer.json()["results"]]


def waiting(http: HttpClient) -> int:
    return int(http.get("/queues/orders").json()["waiting"])


def starts(server: ServerProcess) -> bool:
    try:
        server.start()
    except AssertionError:
        server.wait()
        return False
    return True


def test_a_killed_server_that_was_named_is_there_again_at_once(store: str, tmp_path: Path) -> None:
    """A server that comes back under its owner's name finds what it had answered, without waiting for a lease."""
    with serving(tmp_path / "a", "--store", f"{store}&owner=node-a") as server:
        with server.http() as http:
            assert http.post("/queues/create", json={"queue": "orders"}).json() == {}
            enqueue(http, 3)
        server.kill()
        server.start()
        with server.http() as http:
            assert waiting(http) == 3
            delivery = http.post("/queue/dequeue", json={"queue": "orders", "count": 1}).json()["deliveries"][0]
            assert delivery["payload"] == HELLO


def test_a_stopped_server_is_taken_over_from_and_answers_nothing_when_it_wakes_up(store: str, tmp_path: Path) -> None:
    """While a server is stopped another takes its store; woken up, the first refuses everything and changes nothing."""
    with serving(tmp_path / "a", "--store", store) as first:
        with first.http() as http:
            assert http.post("/queues/create", json={"queue": "orders"}).json() == {}
            enqueue(http, 2)
        second = ServerProcess(tmp_path / "b", "--store", store)
        assert not starts(second), "The first is alive."
        first.signal(signal.SIGSTOP)
        wait_until(lambda: starts(second), what="The second takes over")
        try:
            first.signal(signal.SIGCONT)
            with first.http() as http, second.http() as other:
                for path in ("/queues/orders", "/queues"):
                    refused = http.get(path)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_fenced")
                refused = http.post("/queue/enqueue", json={"queue": "orders", "messages": [{"payload": HELLO}]})
                assert refused.json()["error"]["code"] == "store_fenced"
                assert waiting(other) == 2
                enqueue(other)
                assert waiting(other) == 3
            first.signal(signal.SIGTERM)
            assert first.wait() == 0
        finally:
            second.kill()


def test_a_store_whose_client_is_not_installed_is_refused() -> None:
    """Without the extra the error names it."""
    for url, module, extra in (("postgresql:///x", "psycopg", "postgres"), ("s3://bucket/x", "obstore", "s3")):
        code = f"import sys; sys.modules['{module}'] = None; import fairlane.assembly as a; a.open_broker('{url}')"
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"install fairlane[{extra}]." in run.stderr


def test_the_password_of_a_store_is_not_shown(tmp_path: Path) -> None:
    """What the command line shows of the settings has no secret in it."""
    command = [sys.executable, "-m", "fairlane", "--data", str(tmp_path), "config", "check"]
    environ = {"FAIRLANE_STORE": "postgresql://ann:hidden@db/queues?namespace=x", "PATH": "", "PYTHONPATH": "src"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environ)
    assert "postgresql://ann@db/queues?namespace=x" in run.stdout
    assert "hidden" not in run.stdout + run.stderr
