"""Opens a damaged store, and compares it with what its clients were told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlane.assembly import Broker, open_broker
from fairlane.errors import FairlaneError, MessageNotFound
from fairlane.maintenance import repair_store
from tests.kit.damage.base import QUEUE, Answered
from tests.kit.damage.kinds import KINDS, LOG_KINDS, random_damage
from tests.kit.ids import numbered

SEEDS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a damaged store.

    Attributes:
        kind: what was damaged.
        result: whether it was refused, with the code, or started.
        unreadable: messages whose body is refused with an error. That is loud, so they are not lost.
        lost: messages that were answered and are gone without an error, or have another payload.
        undone: acknowledged messages that are there again.
        reused: ids and tokens that were issued a second time.
        repair: what a repair of a refused store came to.
    """

    kind: str
    result: str
    unreadable: int = 0
    lost: int = 0
    undone: int = 0
    reused: int = 0
    repair: str = ""

    @property
    def is_silent(self) -> bool:
        """Whether something went wrong without an error."""
        return bool(self.lost or self.undone or self.reused or self.repair.startswith("silent"))


KINDS_OF = {"log": LOG_KINDS, "rocksdb": KINDS}
"""The named kinds of damage, by the kind of store."""


def trials(base: Path, answered: Answered, work: Path, store: str, *, seeds: int = SEEDS) -> Iterator[Outcome]:
    """Try all kinds of damage, each on a copy of a store, then random ones."""
    for kind, damage in KINDS_OF[store].items():
        yield trial(base, answered, work, kind, damage)
    for seed in range(seeds):
        yield random_trial(base, answered, work, seed)


def random_trial(base: Path, answered: Answered, work: Path, seed: int) -> Outcome:
    """Try the random damage of a seed."""
    described: list[str] = []
    outcome = trial(base, answered, work, "", lambda folder: described.append(random_damage(folder, seed)))
    return Outcome(f"seed {seed}: {described[0]}", *(getattr(outcome, name) for name in _COUNTED))


_COUNTED = ("result", "unreadable", "lost", "undone", "reused", "repair")


def trial(base: Path, answered: Answered, work: Path, kind: str, damage: Callable[[Path], object]) -> Outcome:
    """Damage a copy of a store, open it, and compare it with what was answered."""
    folder = work / "store"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)
    damage(folder)
    try:
        broker = open_broker(folder)
    except FairlaneError as error:
        return Outcome(kind, f"refused ({error.code})", repair=_repair(folder, answered))
    with broker:
        return _compare(broker, answered, kind)


def _repair(folder: Path, answered: Answered) -> str:
    """Repair a store, and compare what is gone then with what the repair said.

    What was decided within the lost sequences is undone: a message enqueued there is gone, one acknowledged there is
    back. Nothing else may have changed, and no id or token may be issued again.
    """
    try:
        report = repair_store(folder, is_dry_run=False).found
    except FairlaneError as error:
        return f"not possible ({error.code})"
    lost = range(report.end, report.expected_end)
    unreadable = {id_ for _, id_ in report.unreadable}
    with open_broker(folder) as broker:
        if not lost:
            left = Answered({i: p for i, p in answered.payloads.items() if i not in unreadable}, answered.acked, 0)
        else:
            told = {i: p for i, p in answered.payloads.items() if numbered(i) < lost.start and i not in unreadable}
            left = Answered(told, [], 0)
        if lost.start == 1:
            broker.create_queue(QUEUE)
        outcome = _compare(broker, Answered(left.payloads, left.acked, answered.last), "")
    if outcome.is_silent or outcome.unreadable:
        return f"silent: {outcome}"
    return f"done, sequences {lost.start} to {lost.stop - 1} lost" if lost else "done, nothing lost"


def _compare(broker: Broker, answered: Answered, kind: str) -> Outcome:
    unreadable = lost = undone = 0
    for id_, payload in answered.payloads.items():
        try:
            lost += broker.get(QUEUE, id_).payload != payload.encode()
        except MessageNotFound:
            lost += 1
        except FairlaneError:
            unreadable += 1
    for id_ in answered.acked:
        try:
            broker.get(QUEUE, id_, with_body=False)
            undone += 1
        except MessageNotFound:
            continue
    result = "started, errors when read" if unreadable else "started, nothing lost"
    if lost or undone:
        result = "started, silently lost"
    return Outcome(kind, result, unreadable, lost, undone, _reused(broker, answered))


def _reused(broker: Broker, answered: Answered) -> int:
    """Enqueue and lease once more, and count what was issued before."""
    broker.create_queue("afterwards")
    id_ = broker.enqueue("afterwards", b"new")
    (leased,) = broker.lease("afterwards")
    return sum(number <= answered.last for number in (numbered(id_), leased.token))
