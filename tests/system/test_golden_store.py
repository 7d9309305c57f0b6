"""A store that an earlier version wrote is opened by this one. ``tools/make_golden_store.py`` says how it was made."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.broker.handlers.internal import ReadSlice
from fairlane.errors import JournalTrimmed, LeaseMismatch, MessageNotFound
from fairlane.model.message import Delivery, MessageView, Receipt
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered

GOLDEN = Path(__file__).parents[1] / "golden"
DAY_MS = 24 * 3_600_000
Picture = dict[str, Any]


@pytest.fixture(params=sorted(GOLDEN.glob("store-*.tar.gz")), ids=lambda path: path.name)
def archive(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def picture(archive: Path) -> Picture:
    seen: Picture = json.loads((GOLDEN / archive.name.replace(".tar.gz", ".json")).read_text())
    return seen


@pytest.fixture
def broker(archive: Path, picture: Picture, tmp_path: Path) -> Iterator[SteppedBroker]:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    opened = SteppedBroker(RocksDbStore(tmp_path), clock=FakeClock(picture["at_ms"]))
    yield opened
    opened.store.close()


def as_json(value: msgspec.Struct) -> Picture:
    """Return a value as it is after a trip through JSON."""
    plain: Picture = json.loads(msgspec.json.encode(value))
    return plain


def number_of(message_id: str) -> str:
    """Return the number in an id. The picture knows messages by their numbers, which outlive every form of ids."""
    return f"{numbered(message_id):016x}"


def sight_of(broker: SteppedBroker, view: MessageView) -> Picture:
    """Return a message in the terms of the picture."""
    sight = as_json(view)
    state, etag = broker.get_state(view.queue, view.id)
    assert etag == view.state_etag
    assert view.payload is not None
    sight["id"] = number_of(view.id)
    if view.correlation_id == view.id:
        sight["correlation_id"] = sight["id"]
    errors = [[failed.at_ms, failed.attempt, failed.reason, failed.error] for failed in view.errors]
    return sight | {
        "payload": view.payload.hex(),
        "state": None if state is None else state.hex(),
        "errors": errors,  # the picture has them as the journal does
    }


def all_views(broker: SteppedBroker) -> list[MessageView]:
    return [view for queue in broker.queues() for view in broker.peek(queue.name, 1_000, with_body=True)]


def receipt_of(message: Picture) -> Receipt:
    return Receipt(message["id"], message["token"])


def leased_in(picture: Picture) -> list[Picture]:
    return [message for message in picture["messages"] if message["status"] == "leased"]


def test_there_is_a_golden_store() -> None:
    """The store of the present format is among the golden ones."""
    assert (GOLDEN / "store-1.tar.gz").exists()
    assert (GOLDEN / "store-1.tar.gz").stat().st_size <= 200_000


def test_the_messages_are_as_they_were(broker: SteppedBroker, picture: Picture) -> None:
    """Every message is there with all that is known of it, and no other is."""
    seen = {number_of(view.id): sight_of(broker, view) for view in all_views(broker)}
    wanted = {message["id"]: message for message in picture["messages"]}
    assert seen.keys() == wanted.keys()
    for message_id, message in wanted.items():
        expected = {field: value for field, value in message.items() if field != "token"}  # which no view shows
        assert {field: seen[message_id][field] for field in expected} == expected


def test_what_was_done_is_gone(broker: SteppedBroker, picture: Picture) -> None:
    """Messages that were acked, cancelled, purged or dropped are not there."""
    for message_id in picture["gone"].values():
        for queue in picture["queues"]:
            with pytest.raises(MessageNotFound):
                broker.get(queue, message_id)


def test_the_queues_are_as_they_were(broker: SteppedBroker, picture: Picture) -> None:
    """Every queue is there with its policy and its pauses; a later version may know more of a policy."""
    wanted = picture["queues"]
    views = {view.name: view for view in broker.queues()}
    assert views.keys() == wanted.keys()
    for name, view in views.items():
        policy = as_json(view.policy)
        assert {field: policy[field] for field in wanted[name]["policy"]} == wanted[name]["policy"]
        assert view.created_ms == wanted[name]["created_ms"]
        assert view.is_paused == wanted[name]["is_paused"]
        assert list(view.paused_keys) == wanted[name]["paused_keys"]
        inside = [message for message in picture["messages"] if message["queue"] == name]
        assert view.leased == sum(message["status"] == "leased" for message in inside)
        assert view.waiting == len(inside) - view.leased
        assert view.size == sum(message["size"] for message in inside)


def test_config_readers_and_dedup_ids_are_as_they_were(broker: SteppedBroker, picture: Picture) -> None:
    """Config values, readers and dedup ids are remembered, those of messages that are done too."""
    assert broker.list_config() == picture["config"]
    assert [reader.name for reader in broker.readers()] == picture["readers"]
    assert [reader.name for reader in broker.readers() if reader.is_passed] == picture["passed_readers"]
    for dedup_id, message_id in picture["dedup_ids"].items():
        assert number_of(broker.enqueue("billing", b"again", dedup_id=dedup_id)) == message_id


def test_the_leases_are_as_they_were(broker: SteppedBroker, picture: Picture) -> None:
    """Whoever had a lease still has it, under its token and no other."""
    leased = leased_in(picture)
    assert leased
    for message in leased:
        receipt = receipt_of(message)
        (refused,) = broker.ack_many(message["queue"], [Receipt(receipt.id, receipt.token + 1)])
        assert isinstance(refused, LeaseMismatch)
        assert broker.ack_many(message["queue"], [receipt]) == [None]


def test_the_journal_is_readable(broker: SteppedBroker, picture: Picture) -> None:
    """The journal is read from where it was trimmed to its end, and has every kind of record."""
    with pytest.raises(JournalTrimmed):
        broker.call(ReadSlice(after=0))
    trimmed = broker.engine.ledger.trimmed
    kinds: set[str] = set()
    position = trimmed - 1
    while (slice_ := broker.call(ReadSlice(after=position))).pages:
        kinds |= {type(record).__name__ for page in slice_.pages for record in page.records}
        position = slice_.position
    assert position == broker.engine.ledger.next_sequence - 1
    assert kinds >= set(picture["kinds"])
    assert broker.engine.ledger.segments[0].first == trimmed


def test_every_message_can_be_done(broker: SteppedBroker, picture: Picture) -> None:
    """When time has passed and nothing is paused, every message is handed out with its payload, and acked."""
    for name, queue in picture["queues"].items():
        broker.resume(name)
        for key in queue["paused_keys"]:
            broker.resume(name, key=key)
    highest = max(message["token"] for message in leased_in(picture))
    broker.advance(25 * DAY_MS)
    got: list[Delivery] = []
    for name in picture["queues"]:
        while deliveries := broker.lease(name, 10, wait_ms=60_000):
            assert broker.ack_many(name, deliveries) == [None] * len(deliveries)
            got.extend(deliveries)
    assert {number_of(delivery.id): delivery.payload.hex() for delivery in got} == {
        message["id"]: message["payload"] for message in picture["messages"]
    }
    assert len({delivery.id for delivery in got}) == len(got)
    assert min(delivery.token for delivery in got) > highest
    assert all_views(broker) == []
