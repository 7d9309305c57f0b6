"""A copy of a store has everything, wherever it goes, and never issues the ids of its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane import store_copy
from fairlane.assembly import Broker, open_broker
from fairlane.broker.handlers.internal import IdentifyJournal, ReadPages
from fairlane.cli.main import cli
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from fairlane.maintenance import check_store
from fairlane.model.message import NewMessage, Receipt
from fairlane.store_copy import copy_store
from tests.conftest import BUCKET
from tests.kit.ids import numbered
from tests.kit.servers.stores import PostgresServer, S3Server

MESSAGES = 60
Places = dict[str, Callable[[], str]]


@pytest.fixture
def places(tmp_path: Path, request: pytest.FixtureRequest) -> Places:
    """How a place of each kind is named."""

    def postgres() -> str:
        server: PostgresServer = request.getfixturevalue("postgres")
        return f"{server.url}&namespace={tmp_path.name}&owner=copy"

    def objects() -> str:
        server: S3Server = request.getfixturevalue("s3")
        return server.url(BUCKET, tmp_path.name) + "&window_ms=0&owner=copy"

    return {
        "log": lambda: f"log:{tmp_path / 'log-store'}",
        "rocksdb": lambda: f"rocksdb:{tmp_path / 'rocksdb-store'}",
        "postgres": postgres,
        "s3": objects,
    }


def fill(broker: Broker) -> tuple[dict[str, bytes], Receipt]:
    """Enqueue, lease and acknowledge, and return the payloads that are left, and a receipt."""
    broker.create_queue("orders")
    left = {broker.enqueue("orders", b"payload %d" % number): b"payload %d" % number for number in range(MESSAGES)}
    for leased in broker.lease("orders", 20):
        broker.ack(leased)
        del left[leased.id]
    (held,) = broker.lease("orders", visibility_ms=3_600_000)
    return left, Receipt(id=held.id, token=held.token)


PAIRS = [("log", "rocksdb"), ("rocksdb", "log"), ("log", "postgres"), ("postgres", "log"), ("log", "s3"), ("s3", "log")]
PAIRS += [("postgres", "s3"), ("s3", "postgres"), ("rocksdb", "postgres"), ("postgres", "rocksdb")]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_copy_has_everything(places: Places, source: str, target: str) -> None:
    """Messages, leases and journal entries are the same, ids and receipts stay valid, and no id is issued by both."""
    before, after = places[source](), places[target]()
    with open_broker(before) as broker:
        left, receipt = fill(broker)
        journal, pages = broker.call(IdentifyJournal()).journal_id, broker.call(ReadPages(after=0, count=1_000))
    report = copy_store(before, after)
    assert report.messages == len(left)
    with open_broker(after) as copy:
        assert {id_: copy.get("orders", id_).payload for id_ in left} == left
        copied = copy.call(ReadPages(after=0, count=1_000))
        assert copied[: len(pages)] == pages
        assert copy.call(IdentifyJournal()).journal_id == report.journal_id != journal
        assert copy.ack_many("orders", [receipt]) == [None]
        new = numbered(copy.enqueue("orders", b"new"))
    with open_broker(before) as broker:
        assert numbered(broker.enqueue("orders", b"new")) < 1 << 36 < new
    assert check_store(after).is_whole


def test_a_copy_has_results_and_uploads(places: Places) -> None:
    """Results that are kept, payloads that were uploaded, and the pieces of an open upload are in the copy too."""
    before, after = places["log"](), places["rocksdb"]()
    with open_broker(before) as broker:
        broker.create_queue("orders")
        done = broker.enqueue("orders", b"work", result_ttl_ms=3_600_000)
        broker.ack(broker.lease("orders")[0], result=b"the result")
        taken, open_ = (broker.begin_upload("orders").id for _ in range(2))
        for upload in (taken, open_):
            broker.upload_piece("orders", upload, 0, b"uploaded")
        large = broker.enqueue("orders", NewMessage(upload=taken))
    copy_store(before, after)
    with open_broker(after) as copy:
        later = copy.enqueue("orders", NewMessage(upload=open_))
        assert copy.result(done) == b"the result"
        assert [copy.read_payload("orders", id_).data for id_ in (large, later)] == [b"uploaded"] * 2


def test_a_copy_has_fan_outs(places: Places) -> None:
    """A fan-out that is open goes on in the copy: its name is known, and its continuation comes with its payload when
    the last member has ended."""
    before, after = places["log"](), places["rocksdb"]()
    members = {"orders": [NewMessage(payload=b"first"), NewMessage(payload=b"second")]}
    with open_broker(before) as broker:
        broker.create_queue("orders")
        sent = broker.fan_out("orders", NewMessage(payload=b"then"), members, name="album")
        broker.ack(broker.lease("orders")[0])
    assert check_store(before).is_whole
    copy_store(before, after)
    with open_broker(after) as copy:
        again = copy.fan_out("orders", NewMessage(payload=b"then"), members, name="album")
        assert (again.id, again.is_repeat) == (sent.id, True)
        assert copy.status(sent.id).words == "It waits for 1 of the 2 messages of its fan-out."
        copy.ack(copy.lease("orders")[0])
        assert [(leased.id, leased.payload) for leased in copy.lease("orders", 9)] == [(sent.id, b"then")]


def test_a_copy_keeps_unique_keys(places: Places) -> None:
    """A message of the copy still holds its unique key."""
    before, after = places["log"](), places["rocksdb"]()
    with open_broker(before) as broker:
        broker.create_queue("orders")
        first = broker.enqueue("orders", b"once", unique_key="u")
    copy_store(before, after)
    with open_broker(after) as copy:
        again = copy.enqueue_one("orders", b"again", unique_key="u")
        assert (again.id, again.is_repeat) == (first, True)


def test_an_interrupted_copy_is_never_opened(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is not complete is refused by brokers, and by the next copy; the source is as it was."""
    before, after = places["log"](), places["rocksdb"]()
    with open_broker(before) as broker:
        left, _ = fill(broker)
    with monkeypatch.context() as patched:
        patched.setattr(store_copy, "declare_restored", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            copy_store(before, after)
    with pytest.raises(StoreCorrupt, match="unfinished copy"):
        open_broker(after)
    with pytest.raises(InvalidArgument, match="was interrupted"):
        copy_store(before, after)
    assert check_store(before).messages == len(left)


def _interrupt(*_words: object, **_more: object) -> None:
    raise KeyboardInterrupt


def test_a_copy_needs_an_empty_place_and_a_store_that_is_closed(places: Places) -> None:
    """Nothing is overwritten, and nothing is copied while it changes."""
    before, after = places["log"](), places["rocksdb"]()
    with open_broker(before) as broker:
        fill(broker)
        with pytest.raises(StoreLocked):
            copy_store(before, after)
    with open_broker(after) as other:
        other.create_queue("others")
    with pytest.raises(InvalidArgument, match="not empty"):
        copy_store(before, after)
    with pytest.raises(InvalidArgument, match="same"):
        copy_store(before, before)


def test_the_command_tells_what_was_copied(places: Places) -> None:
    """It names the messages, the place and the new journal."""
    before, after = places["log"](), places["rocksdb"]()
    with open_broker(before) as broker:
        fill(broker)
    done = CliRunner().invoke(cli, ["store", "copy", before, after])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"Copied {MESSAGES - 20} messages and the journal up to sequence ")
