"""A data folder whose store has vanished is an error, not a fresh start; and the remedies for it work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairlane.data_folder import STORE_MARK

from .server_process import ServerProcess, serving


def test_a_vanished_store_is_refused_until_it_is_restored_or_repaired(tmp_path: Path) -> None:
    """The server does not start and changes nothing; after a restore it has its messages, after a repair new ids."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    with serving(data) as server:
        ids = [_enqueued(server, make=True)]
        assert _fairlane("--server", f"http://{server.address}", "backup", str(backup)).returncode == 0
    shutil.rmtree(data / "store")
    _refuse_to_start(data)
    assert not (data / "store").exists()

    assert _fairlane("restore", str(backup), str(data)).returncode == 0
    with serving(data) as server:
        assert _call(server, "queue/stats", {"queue": "orders"})["waiting"] == 1
        ids.append(_enqueued(server))
    for path in (data / "store").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _refuse_to_start(data)
    assert list((data / "store").iterdir()) == []

    assert _fairlane("store", "check", str(data)).returncode == 1
    assert _fairlane("store", "repair", str(data), "--yes").returncode == 0
    assert _fairlane("store", "check", str(data)).returncode == 0
    with serving(data) as server:
        ids.append(_enqueued(server, make=True))
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_a_data_folder_without_the_mark_is_opened(tmp_path: Path) -> None:
    """A first start, and a folder that is older than the mark, are no loss; from then on the mark is there."""
    (tmp_path / "admin.key").write_text("flk_something")
    with serving(tmp_path) as server:
        _enqueued(server, make=True)
    (tmp_path / STORE_MARK).unlink()
    with serving(tmp_path) as server:
        assert _call(server, "queue/stats", {"queue": "orders"})["waiting"] == 1
        assert (tmp_path / STORE_MARK).read_text().startswith("The folder store beside this file")


def _call(server: ServerProcess, path: str, request: dict[str, object]) -> Any:
    with server.http() as http:
        answer = http.post(f"/{path}", json=request)
        assert answer.status_code == 200, answer.text
        return answer.json()


def _enqueued(server: ServerProcess, *, make: bool = False) -> str:
    """Enqueue a message, and return its id."""
    if make:
        _call(server, "queues/create", {"queue": "orders"})
    (result,) = _call(server, "queue/enqueue", {"queue": "orders", "messages": [{}]})["results"]
    return str(result["id"])


def _refuse_to_start(data: Path) -> None:
    refused = _fairlane("serve", "--data", str(data), "--port", "0")
    assert (refused.returncode, refused.stderr.startswith("error[store_damaged]")) == (3, True), refused.stderr
    assert "`fairlane store repair FOLDER`" in refused.stderr


def _fairlane(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fairlane", *words], capture_output=True, text=True, check=False)
