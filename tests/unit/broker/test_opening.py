"""Opening a broker by a folder and terms, and what is said to those who forget to close one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlane.assembly import BrokerConfig, Settings, open_broker
from fairlane.errors import InvalidArgument, PayloadTooLarge, StoreLocked
from fairlane.model.message import NewMessage

THREADS = """
from fairlane.assembly import open_broker
broker = open_broker()
"""
LOOP = """
import asyncio
from fairlane.assembly import open_async_broker
async def main():
    broker = await open_async_broker()
    await broker.create_queue("orders")
asyncio.run(main())
"""


def test_terms_may_be_said_beside_the_folder(tmp_path: Path) -> None:
    """They are those of a config."""
    with open_broker(tmp_path / "data", durability="os", settings=Settings(payload_bytes_max=1)) as broker:
        broker.create_queue("orders")
        with pytest.raises(PayloadTooLarge):
            broker.enqueue("orders", NewMessage(payload=b"two"))


@pytest.mark.parametrize(
    ("config", "terms", "told"),
    [
        (None, {"durabilty": "os"}, "no setting 'durabilty'.*Did you mean 'durability'"),
        (None, {"payload_bytes_max": 1}, "limits are in settings="),
        (None, {"durability": "power"}, "durability must be fsync or os, not 'power'"),
        (BrokerConfig(), {"durability": "os"}, "Set durability in the config"),
    ],
)
def test_terms_that_make_no_sense_are_refused(config: Any, terms: dict[str, Any], told: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(InvalidArgument, match=told):
        open_broker(config, **terms)


def test_a_folder_that_this_process_has_open_is_refused(tmp_path: Path) -> None:
    """It is not another process that is to be closed, and the text does not say so."""
    with open_broker(tmp_path / "data"), pytest.raises(StoreLocked) as caught:
        open_broker(tmp_path / "data")
    assert "or this process has, in another broker or client" in str(caught.value)
    assert "Threads of one process share one broker" in str(caught.value)


@pytest.mark.parametrize(("script", "name"), [(THREADS, "Broker"), (LOOP, "AsyncBroker")])
def test_a_broker_that_is_not_closed_is_told_of(script: str, name: str) -> None:
    """With warnings shown, the program ends with a word about it; one that closes says nothing."""
    command = [sys.executable, "-W", "default", "-c"]
    forgotten = subprocess.run([*command, script], capture_output=True, text=True, check=True)
    assert f"ResourceWarning: A {name} was not closed." in forgotten.stderr
    closed = script.replace("broker = open_broker()", "open_broker().close()").replace(
        '("orders")', '("orders")\n    await broker.close()'
    )
    assert subprocess.run([*command, closed], capture_output=True, text=True, check=True).stderr == ""
