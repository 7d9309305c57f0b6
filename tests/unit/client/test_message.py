"""A leased message of a client: its payload in other forms, and what happens when its block is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.client import Client


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of an embedded broker with one queue, whose backoff has no jitter."""
    with Client.embedded() as client:
        client.create_queue("jobs", {"backoff_ms": 7_000, "backoff_jitter": 0})
        yield client


def test_a_payload_is_decoded_from_json(client: Client) -> None:
    """JSON comes as Python values, and anything else raises ValueError."""
    client.enqueue("jobs", b'{"order": [1, "\xc3\xa4", null]}')
    client.enqueue("jobs", b"not JSON")
    good, bad = client.lease("jobs", 2)
    assert good.json() == {"order": [1, "ä", None]}
    with pytest.raises(ValueError, match="JSON"):
        bad.json()


def test_a_payload_is_written_to_a_file(client: Client, tmp_path: Path) -> None:
    """The file has the bytes of the payload, and replaces an earlier one."""
    path = tmp_path / "payload"
    path.write_bytes(b"earlier and longer")
    client.enqueue("jobs", b"\x00\xff")
    (message,) = client.lease("jobs")
    message.write_to(str(path))
    assert path.read_bytes() == b"\x00\xff"


@pytest.mark.parametrize(("exit_delay_ms", "delay_ms"), [(None, 7_000), (60_000, 60_000), (1, 1)])
@pytest.mark.parametrize("is_raising", [True, False])
def test_a_message_waits_after_its_block(
    client: Client, *, exit_delay_ms: int | None, delay_ms: int, is_raising: bool
) -> None:
    """A message that its block did not settle waits for the delay that the consumer chose, or the queue's backoff."""
    sent = client.enqueue("jobs", b"x")
    (message,) = client.lease("jobs")
    message.exit_delay_ms = exit_delay_ms
    with suppress(KeyError), message:
        if is_raising:
            raise KeyError("gone")
    view = client.get("jobs", sent)
    assert view.due_ms == view.errors[0].at_ms + delay_ms
    assert view.errors[0].error == ("KeyError: 'gone'" if is_raising else "")
