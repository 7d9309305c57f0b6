from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server

from .broker_audit import Auditor
from .broker_lives import Lives, audit_what_is_left

KILLS = {"log": 8, "rocksdb": 8, "postgres": 4, "s3": 4, "azure": 4}
MANY = {"log": 100, "rocksdb": 50, "postgres": 50, "s3": 50, "azure": 50}
KILLS_WHILE_OPENING = 4


@pytest.fixture(params=list(KILLS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["a few", pytest.param("many", marks=pytest.mark.long)])
def kills(kind: str, request: pytest.FixtureRequest) -> int:
    """How often a broker is killed under load."""
    return MANY[kind] if request.param == "many" else KILLS[kind]


@pytest.fixture
def store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("durable_postgres")
        return f"{server.url}&namespace={tmp_path.name}&owner=load"
    if kind in ("s3", "azure"):
        bucket: S3Server | AzuriteServer = request.getfixturevalue(kind)
        return bucket.url(BUCKET, tmp_path.name) + "&window_ms=2&owner=load"
    return f"{kind}:{tmp_path / 'store'}"


def test_a_broker_killed_under_load_keeps_its_word(kind: str, kills: int, store: str, tmp_path: Path) -> None:
    """Over many kills under load, and some while opening, nothing answered is lost, undone, or done by a stale
    lease."""
    lives = Lives(tmp_path, seed=3, store=store)
    for kill in range(1, kills + 1):
        lives.live()
        if kill % (kills // KILLS_WHILE_OPENING) == 0:
            lives.live(is_cut_short=True)
    counts = lives.auditor.counts
    remains = audit_what_is_left(lives)
    print(f"\n{kind}: {kills} kills under load, {KILLS_WHILE_OPENING} while opening")
    print("\n".join(f"{count:6} {what}" for what, count in counts.most_common()))
    print(f"{remains:6} drained at the end; none lost, none delivered after its ack, no stale ack accepted")
    assert counts["acked"] > 40 * kills
    assert counts["re-deliveries"] > 4 * kills
    assert counts["refused with lease_mismatch"] > 4 * kills
    assert counts["enqueues repeated with a dedup id"] > 4 * kills
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
    "was delivered with token 9 though": (
        *(*ENQUEUED, asked(5, "lease", queue="orders"), *LEASED, *ACKED),
        answered(5, got=[["01", 9, 2_000, "a", 2, None, None]]),
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
    """A message that was acked by a forward whose new message never came is a fault, also without an answer."""
    auditor = Auditor()
    forward = asked(5, "forward", queue="orders", receipts=[["01", 5]], target="shipping", names=["f"])
    auditor.read_life(life(*ENQUEUED, *LEASED, forward))
    auditor.read_life(life(*surveyed()))
    assert len(auditor.faults) == 1
    assert "f is forwarded: False" in auditor.faults[0]


def test_the_auditor_allows_for_what_was_not_answered() -> None:
    """An ack without an answer may have happened or not; both are correct, and so is the rest of an honest log."""
    ack, _ = ACKED
    for found in ([], [THERE]):
        auditor = Auditor()
        auditor.read_life(life(*ENQUEUED, *LEASED, ack))
        auditor.read_life(life(*surveyed(*found)))
        assert auditor.faults == []


def test_the_auditor_allows_for_an_answer_that_was_written_down_late() -> None:
    """An expired lease that was logged late, after the ack of a newer one, is no second delivery."""
    auditor = Auditor()
    late = answered(5, got=[["01", 4, 500, "a", 1, None, None]], ms=1_100)
    auditor.read_life(life(*ENQUEUED, asked(5, "lease", queue="orders"), *LEASED, *ACKED, late))
    assert auditor.faults == []
