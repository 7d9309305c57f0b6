"""Fixtures of the command-line tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from fairlane.assembly import open_broker
from tests.unit.cli.shell import Shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Yield a shell on a broker in memory with a queue ``jobs`` and a clean environment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tmp")))
    for name in ("FAIRLANE_SERVER", "FAIRLANE_API_KEY", "FAIRLANE_QUEUE_NAME", "FAIRLANE_QUEUE_MESSAGE_ID"):
        monkeypatch.delenv(name, raising=False)
    with open_broker() as broker:
        broker.create_queue("jobs", {"max_attempts": 1})
        yield Shell(broker)
