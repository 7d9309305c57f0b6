"""A backup that is made while the broker goes on has everything up to its mark, and can be restored."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec
import pytest

from fairlane import backup
from fairlane.assembly import Broker, Settings, open_broker, open_store
from fairlane.backup import back_up, restore_backup
from fairlane.broker.handlers.internal import IdentifyJournal
from fairlane.broker.views import stores
from fairlane.errors import InvalidArgument, JournalTrimmed, MessageNotFound, StoreCorrupt, StoreFailed
from fairlane.maintenance import check_store
from fairlane.model.message import NewMessage, Receipt
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.stores import StoreSlice
from tests.conftest import BUCKET
from tests.kit.ids import numbered
from tests.kit.servers.stores import PostgresServer, S3Server

Act = Callable[[], None]


class BusySource:
    """A broker that does something before each slice that is read."""

    def __init__(self, broker: Broker | SteppedBroker, act: Act) -> None:
        self._broker = broker
        self._act = act
        self.slices = 0

    def read_store(self, after: int = 0, *, bodies: Sequence[int] = (), queue: str | None = None) -> StoreSlice:
        self.slices += 1
        self._act()
        return self._broker.read_store(after, bodies=bodies, queue=queue)


class Traffic:
    """What is enqueued and acknowledged, a little at each call, until there was enough."""

    def __init__(self, broker: Broker | SteppedBroker, turns: int) -> None:
        self._broker = broker
        self._turns = turns
        self._number = 0
        self.alive: dict[str, bytes] = {}
        self.gone: set[str] = set()

    def go_on(self) -> None:
        """Enqueue six messages, and acknowledge four."""
        if not self._turns:
            return
        self._turns -= 1
        for _ in range(6):
            self._number += 1
            payload = b"payload %d" % self._number
            self.alive[self._broker.enqueue("orders", payload)] = payload
        for leased in self._broker.lease("orders", 4):
            self._broker.ack(leased)
            del self.alive[leased.id]
            self.gone.add(leased.id)


def check_restored(place: str, traffic: Traffic) -> None:
    """Check that a store has exactly the messages that were left."""
    with open_broker(place) as restored:
        assert {id_: restored.get("orders", id_).payload for id_ in traffic.alive} == traffic.alive
        for id_ in traffic.gone:
            with pytest.raises(MessageNotFound):
                restored.get("orders", id_)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice have about two hundred bytes of pages and bodies."""
    monkeypatch.setattr(stores, "_SLICE_BYTES", 200)
    monkeypatch.setattr(backup, "_BODIES", 3)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("kind", ["memory", "log", "rocksdb", "postgres", "s3"])
def test_a_backup_under_load_has_everything_up_to_its_mark(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever the store is, messages that come and go between the slices are in the backup or gone, as they are."""
    with open_broker(_place(kind, tmp_path, request)) as broker:
        broker.create_queue("orders")
        traffic = Traffic(broker, turns=60)
        for _ in range(20):
            traffic.go_on()
        source = BusySource(broker, traffic.go_on)
        mark = back_up(source, tmp_path / "backup")
        assert mark.journal_id == broker.call(IdentifyJournal()).journal_id
    assert source.slices > 20
    assert mark.messages == len(traffic.alive)
    assert check_store(tmp_path / "backup" / "store").is_whole
    done = restore_backup(tmp_path / "backup", str(tmp_path / "restored"))
    assert (done.messages, done.last_sequence) == (mark.messages, mark.position)
    assert done.journal_id != mark.journal_id
    check_restored(str(tmp_path / "restored"), traffic)


def _place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str | None:
    if kind == "memory":
        return None
    if kind == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return f"{postgres.url}&namespace={tmp_path.name}&owner=source"
    if kind == "s3":
        objects: S3Server = request.getfixturevalue("s3")
        return objects.url(BUCKET, tmp_path.name) + "&window_ms=0&owner=source"
    return f"{kind}:{tmp_path / 'source'}"


@pytest.mark.usefixtures("small_slices")
def test_what_is_older_than_the_journal_is_backed_up(tmp_path: Path) -> None:
    """Bodies whose pages were trimmed long ago, leases, results, states and uploads are all in the backup."""
    clock = FakeClock()
    settings = Settings(segment_events=10, journal_retention_ms=1)
    broker = SteppedBroker(open_store(str(tmp_path / "source")), clock=clock, settings=settings, carry_floor=5)
    broker.create_queue("orders")
    done = broker.enqueue("orders", b"work", result_ttl_ms=3_600_000)
    broker.ack(broker.lease("orders")[0], result=b"the result")
    upload = broker.begin_upload("orders").id
    broker.upload_piece("orders", upload, 0, b"uploaded")
    large = broker.enqueue("orders", NewMessage(upload=upload))
    (held,) = broker.lease("orders", visibility_ms=3_600_000)
    broker.set_state(held, b"half done", etag=None)
    old = broker.enqueue("orders", b"old", delay_ms=3_600_000)
    traffic = Traffic(broker, turns=200)
    for _ in range(100):
        clock.advance(1_000)
        traffic.go_on()
    assert next(broker.store.pages(0)).sequence > numbered(old)
    assert broker.result(done) == b"the result"
    calls = count()
    back_up(BusySource(broker, lambda: None if next(calls) % 50 else traffic.go_on()), tmp_path / "backup")
    broker.close()
    copied = SteppedBroker(open_store(str(tmp_path / "backup" / "store")), clock=clock)
    assert copied.result(done) == b"the result"
    assert copied.read_payload("orders", large).data == b"uploaded"
    assert copied.get("orders", old).payload == b"old"
    assert {each: copied.get("orders", each).payload for each in traffic.alive} == traffic.alive
    assert copied.ack_many("orders", [Receipt(id=held.id, token=held.token)]) == [None]
    copied.close()


def test_a_restored_store_issues_no_id_again(tmp_path: Path) -> None:
    """Messages that were enqueued after the backup keep their ids to themselves."""
    with open_broker(tmp_path / "source") as broker:
        broker.create_queue("orders")
        broker.enqueue("orders", b"before")
        back_up(broker, tmp_path / "backup")
        later = [numbered(broker.enqueue("orders", b"later")) for _ in range(10)]
    restore_backup(tmp_path / "backup", str(tmp_path / "restored"))
    with open_broker(tmp_path / "restored") as restored:
        assert numbered(restored.enqueue("orders", b"new")) > max(later)


@pytest.mark.usefixtures("small_slices")
def test_an_interrupted_backup_is_none(tmp_path: Path) -> None:
    """Half a backup is not restored, and is never overwritten by the next."""
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    with open_broker(tmp_path / "source") as broker:
        broker.create_queue("orders")
        for number in range(20):
            broker.enqueue("orders", b"payload %d" % number)
        with pytest.raises(KeyboardInterrupt):
            back_up(BusySource(broker, fail), tmp_path / "backup")
        with pytest.raises(InvalidArgument, match="not empty"):
            back_up(broker, tmp_path / "backup")
    with pytest.raises(InvalidArgument, match="interrupted"):
        restore_backup(tmp_path / "backup", str(tmp_path / "restored"))
    assert not (tmp_path / "restored").exists()


def test_another_journal_ends_a_backup(tmp_path: Path) -> None:
    """A server whose data was replaced meanwhile is noticed."""
    with open_broker(tmp_path / "one") as one, open_broker(tmp_path / "two") as two:
        for broker in (one, two):
            broker.create_queue("orders")
        sources = iter([one, two])
        switching = _Switching(lambda: next(sources))
        one.enqueue("orders", b"x")
        with pytest.raises(StoreFailed, match="journal was replaced"):
            back_up(switching, tmp_path / "backup")


class _Switching:
    """Reads each slice from another broker, and says that there is more."""

    def __init__(self, choose: Callable[[], Broker]) -> None:
        self._choose = choose

    def read_store(self, after: int = 0, *, bodies: Sequence[int] = (), queue: str | None = None) -> StoreSlice:
        part = self._choose().read_store(min(after, 1), bodies=bodies, queue=queue)
        return msgspec.structs.replace(part, next_sequence=part.next_sequence + 1)


@pytest.mark.parametrize("lost", ["body", "page"])
def test_a_store_that_lacks_something_is_not_backed_up(lost: str, tmp_path: Path) -> None:
    """A missing body or page ends the backup with an error that names it."""
    with open_broker(tmp_path / "source") as broker:
        broker.create_queue("orders")
        broker.enqueue("orders", b"x")
        kind = StoreCorrupt if lost == "body" else JournalTrimmed
        with pytest.raises(kind, match="is missing" if lost == "body" else "was trimmed"):
            back_up(_Lossy(broker, lost), tmp_path / "backup")


class _Lossy:
    """A source whose answers lack all bodies, or whose first answer lacks a page."""

    def __init__(self, broker: Broker, lost: str) -> None:
        self._broker = broker
        self._lost = lost

    def read_store(self, after: int = 0, *, bodies: Sequence[int] = (), queue: str | None = None) -> StoreSlice:
        part = self._broker.read_store(after, bodies=bodies, queue=queue)
        if self._lost == "body":
            return msgspec.structs.replace(part, bodies=[])
        return msgspec.structs.replace(part, pages=[*part.pages[:1], *part.pages[2:]])


def test_the_note_names_the_mark(tmp_path: Path) -> None:
    """backup.json says up to where the backup goes, for programs."""
    with open_broker(tmp_path / "source") as broker:
        broker.create_queue("orders")
        id_ = broker.enqueue("orders", b"x")
        mark = back_up(broker, tmp_path / "backup")
    note = json.loads((tmp_path / "backup" / "backup.json").read_text())
    assert note["messages"] == 1
    assert note["position"] == mark.position >= numbered(id_)
