"""One store, and the processes that open it one after the other."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fairlane.adapters.system import SystemClock
from fairlane.assembly import open_store
from fairlane.model.message import Delivery
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from tests.kit.waiting import wait_until

from .broker_audit import Auditor
from .broker_load import ALL_QUEUES, name_in

ERRANDS = 60
ANSWERS_MAX = 2_000
GOING_ON = 200
LAST_WORDS = 12
LAST_WORDS_S = 10
HOUR_MS = 3_600_000
LATEST_MS = 1 << 62
ROOT = Path(__file__).parents[2]


class LoadedBroker:
    """A process with a broker under load.

    Attributes:
        progress: where it reports each answer with a byte.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._process = process
        self.progress = process.stdout

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def suspend(self, seconds: float) -> None:
        """Stop the process for a time, and let it go on."""
        status = Path(f"/proc/{self._process.pid}/stat")
        self.signal(signal.SIGSTOP)
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", what="the process is stopped")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._forget_progress()
        self.signal(signal.SIGCONT)

    def goes_on(self) -> None:
        """Wait until it has answered some calls from now on."""
        self._forget_progress()
        left = GOING_ON
        while left > 0:
            signs = self.progress.read(left)
            assert signs, "The process ended by itself."
            left -= len(signs)

    def _forget_progress(self) -> None:
        while select.select([self.progress], [], [], 0)[0] and os.read(self.progress.fileno(), 65_536):
            pass


class Lives:
    """One store, the processes that open it one after the other, and their logs.

    Attributes:
        wrong_ms: by how much the wall clock of each process was away from its broker's time at most.
    """

    def __init__(self, folder: Path, *, seed: int, store: str | None = None, may_fail: bool = False) -> None:
        self.store = store if store is not None else str(folder / "store")
        self._folder = folder
        self._chance = random.Random(seed)
        self._count = 0
        self.auditor = Auditor(may_fail=may_fail)
        self.wrong_ms: list[int] = []

    def live(self, *, is_cut_short: bool = False, meanwhile: Callable[[LoadedBroker], None] | None = None) -> None:
        """Run a process, kill it, and audit its log.

        Cut short it is killed while it opens the store. What is to happen meanwhile is handed the process.
        """
        self._count += 1
        log, errands = (self._folder / f"{kind}-{self._count}" for kind in ("log", "errands"))
        errands.write_text(json.dumps(self._errands()))
        command = [sys.executable, "-m", "tests.system.broker_load", self.store, str(log), str(errands)]
        with subprocess.Popen([*command, f"life{self._count}"], stdout=subprocess.PIPE, bufsize=0, cwd=ROOT) as process:
            try:
                self._wait(process, is_cut_short=is_cut_short, meanwhile=meanwhile)
            except Exception as error:
                error.add_note(last_words(process, log))
                raise
            finally:
                process.kill()
        lines = log.read_bytes().splitlines() if log.exists() else []
        self.auditor.read_life(lines)
        self.auditor.faults += time_faults(lines)
        self.wrong_ms.append(wrong_ms(lines))
        assert self.auditor.faults == [], self.auditor.faults[:5]
        assert process.returncode == -signal.SIGKILL, "The process ended by itself."

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        *,
        is_cut_short: bool,
        meanwhile: Callable[[LoadedBroker], None] | None,
    ) -> None:
        """Wait until a process has reached the point where it may be killed, and a little longer, or until it ends."""
        assert process.stdout is not None
        if is_cut_short:
            read_past(process.stdout, b"o", 0)
            pause_ms = self._chance.uniform(0, 40)
        else:
            read_past(process.stdout, b"w", self._chance.randint(1, ANSWERS_MAX))
            pause_ms = self._chance.uniform(0, 3)
        if meanwhile is not None:
            meanwhile(LoadedBroker(process))
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


def last_words(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return how a process is and the end of its log; one that still runs prints where its threads are, and ends."""
    code = process.poll()
    if code is None:
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_WORDS_S)
    lines = log.read_text().splitlines()[-LAST_WORDS:] if log.exists() else []
    how = "still ran" if code is None else f"had ended with {code}"
    return "\n".join([f"The process {how}. Its log ends:", *lines])


def read_past(progress: IO[bytes], mark: bytes, answers: int) -> None:
    """Read until a process reports that point and then a number of answers, or to the end."""
    while progress.read(1) not in (mark, b""):
        pass
    while answers > 0 and (signs := progress.read(answers)):
        answers -= len(signs)


def time_faults(lines: list[bytes]) -> list[str]:
    """Return where the broker's time has not passed like that of the monotonic clock, to a tenth.

    A line has the broker's time, and between which two readings of the monotonic clock it was read.
    """
    first: dict[str, Any] | None = None
    for line in lines:
        with suppress(ValueError):  # the last line may be torn
            fields = json.loads(line)
            first = fields if first is None else first
            passed_ms = fields["ms"] - first["ms"]
            least_ms, most_ms = fields["since"] - first["until"], fields["until"] - first["since"]
            if not least_ms * 9 // 10 - 1 <= passed_ms <= most_ms * 11 // 10 + 1:
                return [f"the broker's time moved by {passed_ms} ms in {least_ms} to {most_ms} ms"]
    return []


def wrong_ms(lines: list[bytes]) -> int:
    """Return by how much the wall clock was away from the broker's time at most."""
    found = 0
    for line in lines:
        with suppress(ValueError):  # the last line may be torn
            fields = json.loads(line)
            found = max(found, abs(fields["wall"] - fields["ms"]))
    return found


def drained(store: str) -> tuple[list[list[Any]], dict[str, str]]:
    """Wait for every lease and delay to end, lease and ack everything, and return it like a survey."""
    remains: list[list[Any]] = []
    broker = SteppedBroker(open_store(store), clock=FakeClock(SystemClock().now_ms() + HOUR_MS))
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


def audit_what_is_left(lives: Lives) -> int:
    """Drain the store, pass the messages to the auditor, and return how many there were."""
    remains, config = drained(lives.store)
    survey = {"n": 1, "do": "survey", "ms": LATEST_MS}
    answer = {"of": 1, "ms": LATEST_MS, "messages": remains, "config": config}
    lives.auditor.read_life([json.dumps(line).encode() for line in (survey, answer)])
    assert lives.auditor.faults == [], lives.auditor.faults[:5]
    return len(remains)
