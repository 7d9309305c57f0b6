from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from fairlead.adapters.rocksdb_store import RocksDbStore
from fairlead.adapters.system_clock import SystemClock
from fairlead.model.message import Delivery
from fairlead.testing.clock import FakeClock
from fairlead.testing.stepped import SteppedBroker

from .broker_audit import Auditor
from .broker_load import ALL_QUEUES, name_in

KILLS = 25
KILLS_WHILE_OPENING = 5
ERRANDS = 60
ANSWERS_MAX = 2_000
HOUR_MS = 3_600_000
LATEST_MS = 1 << 62
ROOT = Path(__file__).parents[2]


class Lives:
    """One store, the processes that open it one after the other, and what they leave in their logs."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.store = folder / "store"
        self._folder = folder
        self._chance = random.Random(seed)  # noqa: S311 - to be repeatable is the point
        self._count = 0
        self.auditor = Auditor()

    def live(self, *, is_cut_short: bool) -> None:
        """Let a process live, kill it, and audit its log; cut short it is killed while it opens the store."""
        self._count += 1
        log, errands = (self._folder / f"{kind}-{self._count}" for kind in ("log", "errands"))
        errands.write_text(json.dumps(self._errands()))
        command = [sys.executable, "-m", "tests.system.broker_load", str(self.store), str(log), str(errands)]
        with subprocess.Popen([*command, f"life{self._count}"], stdout=subprocess.PIPE, bufsize=0, cwd=ROOT) as process:
            try:
                self._wait(process, is_cut_short=is_cut_short)
            finally:
                process.kill()
        self.auditor.read_life(log.read_bytes().splitlines() if log.exists() else [])
        assert self.auditor.faults == []
        assert process.returncode == -signal.SIGKILL, "The process ended by itself."

    def _wait(self, process: subprocess.Popen[bytes], *, is_cut_short: bool) -> None:
        """Wait until a process is so far that it may be killed, and then a little longer; or until it ends."""
        assert process.stdout is not None
        if is_cut_short:
            _read_past(process.stdout, b"o", 0)
            pause_ms = self._chance.uniform(0, 40)
        else:
            _read_past(process.stdout, b"w", self._chance.randint(1, ANSWERS_MAX))
            pause_ms = self._chance.uniform(0, 3)
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause_ms / 1_000)

    def _errands(self) -> dict[str, Any]:
        receipts = list(self.auditor.receipts())
        dedup_ids = [(queue, name, dedup_id) for dedup_id, (queue, name) in self.auditor.dedup_ids.items()]
        old = self._chance.sample(receipts, min(ERRANDS // 2, len(receipts)))
        return {
            "receipts": [*receipts[-ERRANDS // 2 :], *old],
            "dedups": [*dedup_ids[-ERRANDS // 4 :], *self._chance.sample(dedup_ids, min(ERRANDS // 4, len(dedup_ids)))],
        }


def _read_past(progress: IO[bytes], mark: bytes, answers: int) -> None:
    """Read until a process says that it is so far, and then so many answers; or to the end."""
    while progress.read(1) not in (mark, b""):
        pass
    while answers > 0 and (signs := progress.read(answers)):
        answers -= len(signs)


def drained(store: Path) -> tuple[list[list[Any]], dict[str, str]]:
    """Wait for every lease and delay to end, lease and ack everything, and return it as a survey does."""
    remains: list[list[Any]] = []
    broker = SteppedBroker(RocksDbStore(store), clock=FakeClock(SystemClock().now_ms() + HOUR_MS))
    try:
        config = broker.list_config("life:")
        broker.advance(HOUR_MS)
        for queue in ALL_QUEUES:
            while deliveries := broker.lease(queue, 1_000, with_state=True):
                remains.extend(line_of(delivery) for delivery in deliveries)
                assert broker.ack_many(queue, deliveries) == [None] * len(deliveries)
        assert broker.engine.ledger.base > 1, "Recovery was never shortened."
        assert broker.engine.ledger.trimmed > 1, "The journal was never trimmed."
        left = [(view.name, view.waiting, view.leased, view.size) for view in broker.queues()]
        assert left == [(queue, 0, 0, 0) for queue in ALL_QUEUES]
    finally:
        broker.store.close()
    return remains, config


def line_of(delivery: Delivery) -> list[Any]:
    state = None if delivery.state is None else delivery.state.decode(errors="replace")
    return [delivery.id, delivery.queue, name_in(delivery.payload), None, state, delivery.state_etag]


def test_a_broker_killed_25_times_under_load_keeps_its_word(tmp_path: Path) -> None:
    """Over 25 kills under load, and some while opening, nothing answered is lost, undone, or done by stale hands."""
    lives = Lives(tmp_path, seed=3)
    for kill in range(1, KILLS + 1):
        lives.live(is_cut_short=False)
        if kill % (KILLS // KILLS_WHILE_OPENING) == 0:
            lives.live(is_cut_short=True)
    auditor, counts = lives.auditor, lives.auditor.counts
    remains, config = drained(lives.store)
    auditor.read_life(
        life(asked(1, "survey", ms=LATEST_MS), answered(1, messages=remains, config=config, ms=LATEST_MS))
    )
    assert auditor.faults == []
    print(f"\n{KILLS} kills under load, {KILLS_WHILE_OPENING} while opening")
    print("\n".join(f"{count:6} {what}" for what, count in counts.most_common()))
    print(f"{len(remains):6} drained at the end; none lost, none delivered after its ack, no stale ack accepted")
    assert counts["acked"] > 1_000
    assert counts["re-deliveries"] > 100
    assert counts["refused with lease_mismatch"] > 100
    assert counts["enqueues repeated with a dedup id"] > 100
    assert counts["receipts of an earlier life that were still good"] > 0


# ----------------------------------------------------------------------------------------------- who audits the auditor


def asked(number: int, verb: str, *, ms: int = 0, **fields: Any) -> dict[str, Any]:
    return {"n": number, "do": verb, "ms": ms, **fields}


def answered(number: int, *, ms: int = 0, **fields: Any) -> dict[str, Any]:
    return {"of": number, "ms": ms, **fields}


def life(*lines: dict[str, Any]) -> list[bytes]:
    return [json.dumps(line).encode() for line in lines]


ENQUEUED = (
    asked(1, "enqueue", queue="orders", names=["a"], dedups=["once"]),
    answered(1, ids=["01"]),
)
LEASED = (asked(2, "lease", queue="orders"), answered(2, got=[["01", 5, 1_000, "a", 1, None, None]]))
ACKED = (asked(3, "ack", queue="orders", receipts=[["01", 5]]), answered(3, results=[None]))
WRITTEN = (asked(4, "state", queue="orders", receipts=[["01", 5]], value="v"), answered(4, results=["06"]))


def surveyed(*messages: list[Any], ms: int = 0) -> tuple[dict[str, Any], ...]:
    return asked(9, "survey", ms=ms), answered(9, messages=list(messages), config={}, ms=ms)


THERE = ["01", "orders", "a", 5, None, None]
LIES = {
    "is lost": (*ENQUEUED, *surveyed()),
    "is there again": (*ENQUEUED, *LEASED, *ACKED, *surveyed(["01", "orders", "a", None, None, None])),
    "was delivered with token 8 though": (
        *(*ENQUEUED, *LEASED, *ACKED),
        *(asked(5, "lease", queue="orders"), answered(5, got=[["01", 8, 2_000, "a", 2, None, None]])),
    ),
    "was leased again while lease 5 was live, 1000 ms": (
        *(*ENQUEUED, *LEASED),
        *(asked(5, "lease", queue="orders"), answered(5, got=[["01", 8, 2_000, "a", 2, None, None]])),
    ),
    "a stale ack": (
        *(*ENQUEUED, *LEASED),
        *(asked(5, "lease", queue="orders", ms=1_500),),
        *(answered(5, got=[["01", 8, 2_000, "a", 2, None, None]], ms=1_500), *ACKED),
    ),
    "is not greater than": (
        *(*ENQUEUED, *LEASED),
        *(asked(5, "lease", queue="orders", ms=1_500),),
        *(answered(5, got=[["01", 4, 2_000, "a", 2, None, None]], ms=1_500),),
    ),
    "after that lease had expired": (
        *(*ENQUEUED, *LEASED),
        *(asked(3, "ack", queue="orders", receipts=[["01", 5]], ms=1_001), answered(3, results=[None], ms=1_001)),
    ),
    "while lease 5 was live": (
        *(*ENQUEUED, *LEASED),
        *(asked(3, "ack", queue="orders", receipts=[["01", 5]]), answered(3, results=["!lease_mismatch"])),
    ),
    "though lease 5 is live": (*ENQUEUED, *LEASED, *surveyed(["01", "orders", "a", None, None, None])),
    "is there twice": (
        *ENQUEUED,
        *(asked(5, "enqueue", queue="orders", names=["a"], dedups=["once"]), answered(5, ids=["02"])),
    ),
    "nobody has enqueued": surveyed(["01", "orders", "b", None, None, None]),
    "has lost its state": (*ENQUEUED, *LEASED, *WRITTEN, *surveyed(THERE)),
    "config life:1 is None": (asked(5, "config", key="life:1", value="7"), answered(5), *surveyed()),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_auditor_notices(lie: str) -> None:
    """Each kind of broken promise is a fault to the auditor."""
    auditor = Auditor()
    auditor.read_life(life(*LIES[lie]))
    assert len([fault for fault in auditor.faults if lie in fault]) == 1


def test_the_auditor_notices_half_a_forward() -> None:
    """A message that is gone by an ack whose forwarded message never came is a fault, also without an answer."""
    auditor = Auditor()
    forward = asked(5, "forward", queue="orders", receipts=[["01", 5]], target="shipping", names=["f"])
    auditor.read_life(life(*ENQUEUED, *LEASED, forward))
    auditor.read_life(life(*surveyed()))
    assert len(auditor.faults) == 1
    assert "f is forwarded: False" in auditor.faults[0]


def test_the_auditor_allows_for_what_was_not_answered() -> None:
    """An ack without an answer may have happened or not; either is right, and the rest of an honest log is."""
    ack, _ = ACKED
    for found in ([], [THERE]):
        auditor = Auditor()
        auditor.read_life(life(*ENQUEUED, *LEASED, ack))
        auditor.read_life(life(*surveyed(*found)))
        assert auditor.faults == []
