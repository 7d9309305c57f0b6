"""A server on shared stores: killed, suspended and taken over."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.kit.waiting import wait_until

from .server_process import ROOT, HttpClient, ServerProcess, serving

HELLO = base64.b64encode(b"hello").decode()
HEARTBEAT_TIMEOUT_MS = 3_000


@pytest.fixture(params=["postgres", "s3", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("durable_postgres")
        return f"{postgres.url}&namespace={tmp_path.name}&heartbeat_timeout_ms={HEARTBEAT_TIMEOUT_MS}"
    server: S3Server | AzuriteServer = request.getfixturevalue(request.param)
    return server.url(BUCKET, tmp_path.name) + f"&window_ms=1&heartbeat_timeout_ms={HEARTBEAT_TIMEOUT_MS}"


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


def test_a_killed_server_restarts_at_once_under_its_name(store: str, tmp_path: Path) -> None:
    """A server that restarts under its own name finds its data without waiting for its ownership to expire."""
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


def test_a_suspended_server_is_fenced_after_a_takeover(store: str, tmp_path: Path) -> None:
    """Another server takes over from a suspended one; when that resumes, it rejects everything and changes nothing."""
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


def test_a_store_without_its_extra_is_rejected() -> None:
    """The error names the missing extra."""
    for url, module, extra in (("postgresql:///x", "psycopg", "postgres"), ("s3://bucket/x", "obstore", "s3")):
        code = f"import sys; sys.modules['{module}'] = None; import fairlane.assembly as a; a.open_broker('{url}')"
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"install fairlane[{extra}]." in run.stderr


def test_the_password_of_a_store_is_not_shown(tmp_path: Path) -> None:
    """The settings that the command line shows contain no secret."""
    command = [sys.executable, "-m", "fairlane", "--data", str(tmp_path), "config", "check"]
    environ = {"FAIRLANE_STORE": "postgresql://ann:hidden@db/queues?namespace=x", "PATH": "", "PYTHONPATH": "src"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environ)
    assert "postgresql://ann@db/queues?namespace=x" in run.stdout
    assert "hidden" not in run.stdout + run.stderr
