from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.adapters.log.store import LogStore
from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.assembly import BrokerConfig, open_broker
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.threads import Broker
from fairlane.errors import FairlaneError, StoreFailed, StoreFull
from fairlane.model.message import Delivery, NewMessage
from tests.kit.waiting import PATIENCE_S, wait_until

DISK_BYTES = 24 << 20
PAYLOAD_BYTES = 20_000
SMALL_BYTES = 100
BALLAST_BYTES = 18 << 20
"""What can be freed: more than the log, which RocksDB has to write anew before it goes on."""
PAGE_BYTES = 4_096
FAILURES_MAX = 20
MESSAGES_MAX = 10 * DISK_BYTES // PAYLOAD_BYTES


class TinyDisk:
    """A file system with hardly any room, most of which is taken by a ballast that can be thrown off."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.store = folder / "store"
        self._ballast = folder / "ballast"
        self.store.mkdir()

    def load(self, size: int) -> None:
        """Take room away."""
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def load_all(self) -> None:
        """Take away all the room there is, bit by bit, since the store may take some of it meanwhile."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(PAGE_BYTES)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def unload(self) -> None:
        """Give the room back."""
        self._ballast.unlink()


@pytest.fixture(params=["log", "rocksdb"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TinyDisk]:
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None or os.geteuid() != 0:
        pytest.skip("Only root can mount a small file system.")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"A small file system can't be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield TinyDisk(folder, request.param)
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)


def opened(disk: TinyDisk) -> Broker:
    """Open a broker without a reserve, so that the disk gets full to the last byte."""
    engine = Engine(
        LogStore(disk.store) if disk.kind == "log" else RocksDbStore(disk.store),
        hooks=LuaHooks(lambda _queue, _name: None),
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    engine.open()
    return Broker(engine)


def payload_of(number: int, size: int) -> bytes:
    return f"{number:08}".encode() * (size // 8)


def fill(
    broker: Broker, *, size: int = PAYLOAD_BYTES, first: int = 0
) -> tuple[dict[str, int], StoreFailed | StoreFull]:
    """Enqueue until the store fails; return what was acknowledged, by id, and how it failed."""
    acknowledged: dict[str, int] = {}
    for number in range(first, first + MESSAGES_MAX):
        try:
            message = NewMessage(payload=payload_of(number, size), dedup_id=f"message-{number}")
            acknowledged[broker.enqueue("orders", message)] = number
        except (StoreFailed, StoreFull) as failure:
            return acknowledged, failure
    raise AssertionError("The disk is not as small as it should be.")


def leased(broker: Broker) -> list[Delivery]:
    """Lease everything."""
    deliveries: list[Delivery] = []
    while some := broker.lease("orders", 1_000):
        deliveries.extend(some)
    return deliveries


def test_a_full_disk_is_told_and_loses_nothing(disk: TinyDisk) -> None:
    """On a full disk an enqueue says so and what to do; once there is room the same broker goes on, with everything."""
    disk.load(BALLAST_BYTES)
    with opened(disk) as broker:
        broker.create_queue("orders")
        acknowledged, failure = fill(broker)
        assert len(acknowledged) > 50
        assert failure.code == "store_failed"
        assert "disk space" in failure.remedy
        assert "No space left on device" in failure.cause
        # A store that recovers may give up files that it had prepared, so a few more messages may fit.
        first_refused = len(acknowledged)
        more, again = fill(broker, first=first_refused + 1)
        assert again.code == "store_failed"
        acknowledged |= more
        disk.unload()
        after = broker.enqueue("orders", b"after")
        deliveries = leased(broker)
        got = {delivery.id: delivery.payload for delivery in deliveries}
        expected = {id_: payload_of(number, PAYLOAD_BYTES) for id_, number in acknowledged.items()}
        assert {id_: got.get(id_) for id_ in expected} == expected
        assert got[after] == b"after"
        unsure = sorted(got[id_] for id_ in got.keys() - expected.keys() - {after})
        refused = [payload_of(number, PAYLOAD_BYTES) for number in (first_refused, first_refused + 1 + len(more))]
        assert unsure in ([], refused, refused[:1], refused[1:])
        assert broker.ack_many("orders", deliveries) == [None] * len(deliveries)


def test_what_a_full_disk_refused_can_be_repeated(disk: TinyDisk) -> None:
    """An enqueue that a full disk refused is there once, not twice, when it is repeated with its dedup id."""
    disk.load(BALLAST_BYTES)
    with opened(disk) as broker:
        broker.create_queue("orders")
        acknowledged, _ = fill(broker)
        disk.unload()
        number = len(acknowledged)
        again = NewMessage(payload=payload_of(number, PAYLOAD_BYTES), dedup_id=f"message-{number}")
        assert broker.enqueue("orders", again) == broker.enqueue("orders", again)
        assert broker.queue("orders").waiting == number + 1


def test_a_full_disk_refuses_acks_or_does_them(disk: TinyDisk) -> None:
    """On a full disk an ack is done and stays done, or is refused with store_failed and can be repeated."""
    disk.load(BALLAST_BYTES)
    with opened(disk) as broker:
        broker.create_queue("orders", {"visibility_timeout_ms": 600_000})
        first = broker.enqueue_many("orders", [NewMessage(payload=b"%d" % at) for at in range(20)])
        deliveries = broker.lease("orders", 20)
        assert [delivery.id for delivery in deliveries] == first
        fill(broker)
        disk.load_all()
        done: set[str] = set()
        for delivery in deliveries:
            try:
                broker.ack(delivery)
                done.add(delivery.id)
            except StoreFailed:
                continue
        disk.unload()
        results = broker.ack_many("orders", deliveries)
        for delivery, result in zip(deliveries, results, strict=True):
            code = result.code if isinstance(result, FairlaneError) else None
            assert code in (("message_not_found",) if delivery.id in done else (None, "message_not_found"))
        assert broker.queue("orders").leased == 0


def test_a_disk_with_a_little_room_left_does_not_stop_the_broker(disk: TinyDisk) -> None:
    """With the last bytes gone to small messages every call still ends, and the broker goes on when there is room."""
    disk.load(BALLAST_BYTES)
    with opened(disk) as broker:
        broker.create_queue("orders")
        acknowledged, _ = fill(broker)
        for _ in range(5):
            more, failure = fill(broker, size=SMALL_BYTES, first=MESSAGES_MAX + len(acknowledged))
            acknowledged |= more
            assert failure.code == "store_failed"
        disk.unload()
        broker.enqueue("orders", b"after")
        assert acknowledged.keys() <= {delivery.id for delivery in leased(broker)}


def test_a_store_that_was_full_opens_again(disk: TinyDisk) -> None:
    """A broker that is closed on a full disk opens when there is room, with everything; a log opens there, too."""
    disk.load(BALLAST_BYTES)
    with opened(disk) as broker:
        broker.create_queue("orders")
        acknowledged, _ = fill(broker)
    disk.load_all()
    if disk.kind == "log":
        with opened(disk) as broker:
            assert acknowledged.keys() <= {view.id for view in broker.peek("orders", 10_000)}
    else:
        with pytest.raises(StoreFailed, match="No space left on device"):
            opened(disk)
    disk.unload()
    with opened(disk) as broker:
        assert acknowledged.keys() <= {view.id for view in broker.peek("orders", 10_000)}


def test_a_full_disk_can_be_drained(disk: TinyDisk) -> None:
    """With the reserve, enqueues are refused, everything can be leased and acked, and enqueues then work again."""
    disk.load(BALLAST_BYTES)
    with open_broker(BrokerConfig(path=f"{disk.kind}:{disk.store}")) as broker:
        broker.create_queue("orders")
        acknowledged, failure = fill(broker)
        assert isinstance(failure, StoreFull)
        assert "less than the reserve of 3.0 MiB (disk_reserve_bytes)" in failure.cause
        assert len(acknowledged) > 50
        deliveries = leased(broker)
        assert [delivery.id for delivery in deliveries] == list(acknowledged)
        for delivery in deliveries:
            broker.ack(delivery)
        assert broker.queue("orders").waiting == 0
        disk.unload()
        wait_until(lambda: is_taken(broker), what="an enqueue is accepted")


def is_taken(broker: Broker) -> bool:
    """Return whether the broker accepts an enqueue."""
    try:
        broker.enqueue("orders", b"after")
    except StoreFull:
        return False
    return True


class Stubborn(MemoryStore):
    """A store that can always be opened, and for a while not be written to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = False
        self.failures = 0
        self.is_pestered = threading.Event()

    def sync(self) -> None:
        if self.is_stuck:
            self.failures += 1
            if self.failures >= FAILURES_MAX:
                self.is_pestered.set()
            raise StoreFailed("The disk does not take it.")
        super().sync()


def test_a_store_that_opens_but_takes_nothing_does_not_hang_the_broker() -> None:
    """While every commit fails though recovery works, the broker is calm and answers, and later goes on."""
    store = Stubborn()
    engine = Engine(store, hooks=LuaHooks(lambda _queue, _key: None), clock=SystemClock(), entropy=SystemEntropy())
    engine.open()
    broker = Broker(engine)
    broker.create_queue("orders")
    before = broker.enqueue("orders", b"before")
    answers: list[str] = []

    def ask() -> None:
        try:
            broker.enqueue("orders", b"refused")
            answers.append("done")
        except StoreFailed as error:
            answers.append(error.code)

    store.is_stuck = True
    ask()
    is_pestered = store.is_pestered.wait(1)
    caller = threading.Thread(target=ask, daemon=True)
    caller.start()
    caller.join(PATIENCE_S)
    is_hung = caller.is_alive()
    store.is_stuck = False
    caller.join()
    assert not is_hung
    assert not is_pestered, f"The store was asked {store.failures} times within a second."
    assert answers == ["store_failed"] * 2
    assert before in {delivery.id for delivery in broker.lease("orders", 10)}
    broker.close()
