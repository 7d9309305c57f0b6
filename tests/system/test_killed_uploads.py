"""Uploads and kill -9: of the server midway, and of the client; nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from fairlane.client import Client
from fairlane.model.message import NewMessage
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.kit.waiting import PATIENCE_S, wait_until

from .server_process import ServerProcess, serving
from .store_space import bytes_in_bucket, bytes_in_folder, bytes_in_postgres

MIB = 1024 * 1024
SILENCE = ("--upload-silence-ms", "1000")
LONG_SILENCE = ("--upload-silence-ms", "20000")
"""For long uploads: on a busy machine one of them may be silent for a second."""
UPLOADER = """
import sys
from fairlane.client import Client

def parts():
    while True:
        yield bytes(100_000)

with Client(sys.argv[1]) as client:
    client.enqueue_stream("films", parts())
"""


_ENDLESS = "cat /dev/zero | "
_RAW = "-s -T - -X POST -H 'content-type: application/octet-stream'"
INTERFACES = {
    "stream": [sys.executable, "-c", UPLOADER, "ws://ADDRESS"],
    "http": ["sh", "-c", f"{_ENDLESS}curl {_RAW} 'http://ADDRESS/v1/queue/enqueue?queue=films'"],
    "cli": ["sh", "-c", f"{_ENDLESS}{sys.executable} -m fairlane --server http://ADDRESS enqueue films"],
}
"""Commands that upload without end."""
STORES = ("log", "rocksdb", "postgres", "s3", "azure")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server keeps its store.

    Attributes:
        url: what it is called in settings.
        size: returns how many bytes it takes.
        before_kill: how much of a payload is stored before the server is killed.
        left_max: how much more than an empty store it may take in the end. The log keeps a few empty files to write
            to, and RocksDB compacts where about 128 MiB are unneeded.
        left_of_long_max: the same after a long upload, where the empty files of the log have 32 MiB each: the one that
            it writes to, the next, and the last.
    """

    url: str
    size: Callable[[], int]
    before_kill: int = 32 * MIB
    left_max: int = MIB
    left_of_long_max: int = MIB


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = tmp_path.name
    if request.param in ("log", "rocksdb"):
        folder = tmp_path / "store"
        is_log = request.param == "log"
        return Place(
            url=f"{request.param}:{folder}",
            size=lambda: bytes_in_folder(folder),
            before_kill=(32 if is_log else 192) * MIB,
            left_max=16 * MIB,
            left_of_long_max=(97 if is_log else 16) * MIB,
        )
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("durable_postgres")
        return Place(url=f"{postgres.url}&namespace={name}&owner=one", size=lambda: bytes_in_postgres(postgres, name))
    server: S3Server | AzuriteServer = request.getfixturevalue(request.param)
    url = server.url(BUCKET, name) + "&window_ms=1&owner=one"
    return Place(url=url, size=lambda: bytes_in_bucket(server, name))


def opened_uploads(server: ServerProcess) -> list[dict[str, int]]:
    """Return the open uploads of a server."""
    with server.http() as http:
        found: list[dict[str, int]] = http.post("/queue/upload/list", json={"queue": "films"}).json()["uploads"]
        return found


def uploading(server: ServerProcess, interface: str, *, size: int = 4 * MIB) -> subprocess.Popen[bytes]:
    """Start a client that uploads without end, and return once more than a size is stored."""
    with server.http() as http:
        http.post("/queues/ensure", json={"queue": "films"})
    command = [part.replace("ADDRESS", server.address) for part in INTERFACES[interface]]
    quiet = subprocess.DEVNULL
    client = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)

    def is_stored() -> bool:
        assert client.poll() is None, "The client ended before it was killed."
        return any(upload["size"] > size for upload in opened_uploads(server))

    try:
        wait_until(is_stored, what="pieces arrive")
    except BaseException:
        kill(client)
        raise
    return client


def kill(client: subprocess.Popen[bytes]) -> None:
    """Kill a client and what it has started."""
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_killed_client_leaves_nothing(tmp_path: Path, interface: str) -> None:
    """The broker drops the upload, at the latest after a silence, and the queue has no message."""
    with serving(tmp_path / "data", *SILENCE) as server:
        kill(uploading(server, interface))
        wait_until(lambda: opened_uploads(server) == [], what="the upload is swept")
        with server.http() as http:
            stats = http.post("/queue/stats", json={"queue": "films"}).json()
        assert (stats["waiting"], stats["size"]) == (0, 0)


@pytest.mark.parametrize(
    ("place", "interface", "mebibytes"),
    [
        *((store, "stream", None) for store in STORES),
        *(("log", interface, None) for interface in ("http", "cli")),
        *(pytest.param(*case, 480, marks=pytest.mark.long) for case in product(STORES, INTERFACES)),
    ],
    indirect=["place"],
)
def test_a_server_killed_midway_leaves_nothing(
    place: Place, interface: str, mebibytes: int | None, tmp_path: Path
) -> None:
    """On every store the next server finds the upload in its journal, drops it after a silence, and frees its space."""
    silence = SILENCE if mebibytes is None else LONG_SILENCE
    with serving(tmp_path / "data", "--store", place.url, *silence) as server:
        with server.http() as http:
            http.post("/queues/ensure", json={"queue": "films"})
        empty, stored = place.size(), place.before_kill if mebibytes is None else mebibytes * MIB
        client = uploading(server, interface, size=stored)
        server.kill()
        kill(client)
        assert place.size() > empty + stored
        server.start()
        wait_until(lambda: opened_uploads(server) == [], what="the upload is swept")
        left_max = place.left_max if mebibytes is None else place.left_of_long_max
        wait_until(lambda: place.size() < empty + left_max, what="the store's size goes back")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        server.start()
        assert opened_uploads(server) == []
        with server.http() as http:
            stats = http.post("/queue/stats", json={"queue": "films"}).json()
        assert (stats["waiting"], stats["size"]) == (0, 0)


def test_a_raw_body_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """A caller that is killed while it sends is noticed by its connection."""
    with serving(tmp_path / "data", "--upload-silence-ms", "60000") as server:
        with server.http() as http:
            http.post("/queues/create", json={"queue": "films"})
        curl = "curl -s -T - -X POST -H 'content-type: application/octet-stream' --limit-rate 20M"
        command = f"head -c 2000000000 /dev/zero | {curl} 'http://{server.address}/v1/queue/enqueue?queue=films'"
        caller = subprocess.Popen(["sh", "-c", command], start_new_session=True)
        wait_until(lambda: any(upload["size"] > 4 * MIB for upload in opened_uploads(server)), what="pieces arrive")
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait()
        wait_until(lambda: opened_uploads(server) == [], what="the upload is dropped")


def test_a_client_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    """Pieces are sent again until the server is back, and the payload is complete."""
    size = 60_000_000
    path = tmp_path / "film"
    path.write_bytes(bytes(range(250)) * (size // 250))
    with serving(tmp_path / "data") as server:
        port = server.address.rpartition(":")[2]
        with Client(f"ws://{server.address}") as client:
            client.create_queue("films")
            upload = client.begin_upload("films", size=size)
            pieces = -(-size // upload.piece_bytes)
            with path.open("rb") as file:
                for index in range(pieces):
                    if index == pieces // 2:
                        server.kill()
                        again = ServerProcess(tmp_path / "data", "--port", port)
                        again.start()
                        server.process = again.process
                    client.upload_piece("films", upload.id, index, file.read(upload.piece_bytes))
            client.enqueue("films", NewMessage(upload=upload.id))
            (message,) = client.lease("films")
            message.write_to(tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (["--upload-bytes-max", "100000000000"], "exceeds uploads_bytes_max"),
        (["--payload-bytes-max", "100000000"], "Raise body_bytes_max, too"),
        (["--body-bytes-max", "2147483648", "--grpc-port", "0"], "body_bytes_max must be at most 2147483647"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_line(
    tmp_path: Path, flags: list[str], cause: str
) -> None:
    """The server does not start, and says which setting to change."""
    command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", str(tmp_path / "data"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert cause in done.stderr
    assert "Traceback" not in done.stderr


def test_raw_payloads_beyond_the_limit_are_refused_by_their_length(tmp_path: Path) -> None:
    """The answer names upload_bytes_max."""
    with serving(tmp_path / "data", "--upload-bytes-max", str(MIB)) as server, server.http() as http:
        http.post("/queues/create", json={"queue": "films"})
        raw = {"content-type": "application/octet-stream"}
        answer = http.post("/queue/enqueue?queue=films", content=bytes(2 * MIB), headers=raw)
        assert (answer.status_code, "upload_bytes_max" in answer.text) == (413, True)
