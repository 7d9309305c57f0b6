"""The store to damage, and everything that its clients were told.

It is made by a process that is killed, in two lives. In RocksDB the first leaves tables and the second a log; in a log
both leave several segments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from fairlane.adapters.folder.high_water import read_high_water
from fairlane.adapters.log.store import LogStore
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.assembly import Broker, open_broker, open_hooks
from fairlane.broker.engine.engine import Engine
from tests.kit.ids import numbered

QUEUE = "orders"
MESSAGES = 150
"""How many are enqueued in each life, one by one. Every fifth is acknowledged, every seventh stays leased."""
_LEASE_MS = 3_600_000
_SEGMENT_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """What clients were told.

    Attributes:
        payloads: the payload of each message that is not acknowledged, by its id.
        acked: the ids of acknowledged messages.
        last: the greatest id or token that was given out.
    """

    payloads: dict[str, str]
    acked: list[str]
    last: int


def payload_of(number: int) -> bytes:
    """Return the payload of a message; some are longer than a block of the log."""
    return b"message %d " % number * (5_000 if number % 50 == 7 else 10)


def make_base(folder: Path, kind: str) -> Answered:
    """Make the store of a kind in a folder, by a process that is killed, and return what it answered."""
    command = [sys.executable, "-m", __name__, str(folder), kind]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == -signal.SIGKILL, told.stderr
    return Answered(**json.loads(told.stdout))


def _live(broker: Broker, answered: Answered, first: int) -> int:
    last = 0
    for number in range(first, first + MESSAGES):
        payload = payload_of(number)
        id_ = broker.enqueue(QUEUE, payload)
        answered.payloads[id_] = payload.decode()
        last = numbered(id_)
        if number % 5 == 0 or number % 7 == 0:
            (leased,) = broker.lease(QUEUE, visibility_ms=_LEASE_MS)
            last = leased.token
            if number % 5 == 0:
                broker.ack(leased)
                del answered.payloads[leased.id]
                answered.acked.append(leased.id)
    return last


def _await_mark(folder: Path, end: int) -> None:
    """Return when the high-water mark covers everything before a sequence."""
    pause = threading.Event()
    while (mark := read_high_water(folder)) is None or mark.answered < end:
        pause.wait(0.05)


def _opened(folder: Path, kind: str) -> Broker:
    """Open a broker; segments of a log are small, so that there are several."""
    if kind == "rocksdb":
        return open_broker(f"rocksdb:{folder}")
    store = LogStore(folder, segment_bytes_max=_SEGMENT_BYTES)
    engine = Engine(store, hooks=open_hooks(lambda _key: None), clock=SystemClock(), entropy=SystemEntropy())
    engine.open()
    return Broker(engine)


def main(folder: Path, kind: str) -> None:
    """Make the store, print what was answered, and die."""
    answered = Answered({}, [], 0)
    with _opened(folder, kind) as broker:
        broker.create_queue(QUEUE)
        _live(broker, answered, 1)
    second = _opened(folder, kind)
    last = _live(second, answered, 1 + MESSAGES)
    _await_mark(folder, second._engine.ledger.next_sequence)  # the last record may be an ack, which has no id
    print(json.dumps({"payloads": answered.payloads, "acked": answered.acked, "last": last}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
