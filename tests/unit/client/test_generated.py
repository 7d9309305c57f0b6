"""Tests that both clients have all verbs, with the same arguments."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.assembly import Broker
from fairlane.client import AsyncClient, Client

NOT_REMOTE = {"attach", "is_closed", "read_pages", "segments"}
"""Methods of a broker that make sense only in its own process."""


def test_what_is_made_is_up_to_date() -> None:
    """Each file for threads is what its twin for asyncio makes, in client and broker alike."""
    command = [sys.executable, str(Path(__file__).parents[3] / "tools" / "sync_verbs.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_every_verb_of_the_broker_is_one_of_the_client(client: type) -> None:
    """A client has every verb of an embedded broker."""
    verbs = {name for name in dir(Broker) if not name.startswith("_")}
    assert verbs - NOT_REMOTE - set(dir(client)) == set()


@pytest.mark.parametrize("name", [name for name in dir(Client) if not name.startswith("_")])
def test_both_clients_have_the_same_verbs(name: str) -> None:
    """Both clients take the same arguments, under the same names and in the same order."""
    of_threads, of_tasks = getattr(Client, name), getattr(AsyncClient, name)
    assert list(inspect.signature(of_threads).parameters) == list(inspect.signature(of_tasks).parameters)
    assert of_threads.__doc__
