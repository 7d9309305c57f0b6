"""What a server writes is for its owner alone, whatever umask and folder it was started with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .server_process import serving


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set the umask under which everything is open to everybody, which processes inherit."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_other_users_can_read_nothing(tmp_path: Path) -> None:
    """In a folder that was there, with mode 0755, the store and the first key have modes 0700 and 0600."""
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    target = tmp_path / "target"
    target.write_text("untouched")
    (data / "admin.key").symlink_to(target)
    with serving(data, "--auth", "true") as server:
        key = (data / "admin.key").read_text().strip()
        headers = {"authorization": f"Bearer {key}"}
        with server.http(headers=headers) as http:
            assert http.post("/queues/create", json={"queue": "orders"}).status_code == 200
        modes = {path: path.lstat().st_mode & 0o777 for path in data.rglob("*")}
    assert {path.name for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == set()
    assert target.read_text() == "untouched"
    assert not (data / "admin.key").is_symlink()


@pytest.mark.usefixtures("open_umask")
def test_a_key_file_that_others_can_read_is_closed(tmp_path: Path) -> None:
    """A server that finds its first key with mode 0644 makes it 0600."""
    with serving(tmp_path, "--auth", "true"):
        pass
    (tmp_path / "admin.key").chmod(0o644)
    with serving(tmp_path, "--auth", "true"):
        assert (tmp_path / "admin.key").stat().st_mode & 0o777 == 0o600
