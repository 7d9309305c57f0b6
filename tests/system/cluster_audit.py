"""An auditor of what the clients of a cluster saw. It knows their log and nothing of nodes, boards or stores.

What was answered is certain; a call without an answer may have been done or not. Instants are those of one monotonic
clock, that of the process all clients are in, and are compared only where they leave no doubt: a thread or a frame may
come late, so a delivery proves nothing about those that were asked for before it was seen. What no delay can excuse is
told by fencing tokens and ids, which are places in the journal of a queue: two owners at once would give one of them
twice, or let an ack pass that a later lease has made stale.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.kit.ids import numbered

Outcome = Literal["done", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Sent:
    """An enqueue that was answered with an id, or without one if its outcome is unknown."""

    queue: str
    name: str
    id: str | None
    asked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Got:
    """A message that was delivered under a lease.

    Attributes:
        asked: when it was asked for; None on a stream, where it comes by itself.
        leased_ms: when it was leased, by the clock of the node that did.
    """

    queue: str
    name: str
    id: str
    token: int
    asked: float | None
    seen: float
    leased_ms: int
    throttle: str | None = None


@dataclass(frozen=True, slots=True)
class Acked:
    """An ack and its outcome."""

    queue: str
    id: str
    token: int
    outcome: Outcome
    asked: float
    answered: float


@dataclass(slots=True)
class Log:
    """What the clients saw, in the order in which they logged it."""

    sent: list[Sent] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Throttle:
    """A throttle that was set before anything was enqueued."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an audit: broken promises, and how much it examined."""

    faults: list[str]
    counts: Counter[str]


def audit(log: Log, *, throttles: dict[str, Throttle] | None = None, is_drained: bool = True) -> Findings:
    """Check everything the clients saw; if the queues were drained at the end, nothing may be missing."""
    faults = [
        *_one_id_each(log),
        *_one_lease_each(log.got),
        *_tokens_grow(log.got),
        *_ids_grow(log.sent),
        *_acks_count_once(log),
        *(_nothing_is_lost(log) if is_drained else ()),
    ]
    for name, throttle in (throttles or {}).items():
        faults += _throttle_holds(name, throttle, log.got)
    return Findings(faults, _counts(log))


def _counts(log: Log) -> Counter[str]:
    counts = Counter(f"acks {ack.outcome}" for ack in log.acked)
    counts["enqueued"] = sum(sent.id is not None for sent in log.sent)
    counts["enqueues without an answer"] = sum(sent.id is None for sent in log.sent)
    counts["deliveries"] = len(log.got)
    counts["delivered again"] = len(log.got) - len({(got.queue, got.id) for got in log.got})
    return counts


def _one_id_each(log: Log) -> Iterable[str]:
    """A message has one id, however often its enqueue was repeated, and no two have the same."""
    names: dict[tuple[str, str], str] = {}
    ids: dict[str, tuple[str, str]] = {}
    known = [(sent.queue, sent.id, sent.name) for sent in log.sent if sent.id is not None]
    for queue, id_, name in [*known, *((got.queue, got.id, got.name) for got in log.got)]:
        if (other := names.setdefault((queue, id_), name)) != name:
            yield f"{name} and {other} have the same id {id_} in {queue}"
        if (place := ids.setdefault(name, (queue, id_))) != (queue, id_):
            yield f"{name} was enqueued twice, as {place} and as {(queue, id_)}"


def _one_lease_each(got: Sequence[Got]) -> Iterable[str]:
    """No fencing token is issued twice."""
    seen: dict[tuple[str, int], Got] = {}
    for each in got:
        if (other := seen.setdefault((each.queue, each.token), each)) is not each:
            yield f"token {each.token} of {each.queue} was given for {other.name} and again for {each.name}"


def _tokens_grow(got: Sequence[Got]) -> Iterable[str]:
    """A lease requested after a delivery was seen has a greater token, within the same journal."""
    for journal in {_journal(each.queue, each.token) for each in got}:
        mine = [each for each in got if _journal(each.queue, each.token) == journal]
        asked = sorted((each.asked, each.token) for each in mine if each.asked is not None)
        yield from _grows([(each.seen, each.token) for each in mine], asked, f"token of {journal}")


def _ids_grow(sent: Sequence[Sent]) -> Iterable[str]:
    """A message enqueued after another enqueue was answered has a greater id, within the same journal."""
    known = [(each, numbered(each.id)) for each in sent if each.id is not None]
    for journal in {_journal(each.queue, number) for each, number in known}:
        mine = [(each, number) for each, number in known if _journal(each.queue, number) == journal]
        asked = sorted((each.asked, number) for each, number in mine)
        yield from _grows([(each.answered, number) for each, number in mine], asked, f"id in {journal}")


def _journal(queue: str, number: int) -> str:
    """Return the journal of a number: each partition of a queue has one, with numbers far from those of the others."""
    return f"{queue}~{number >> 47}"


def _grows(known: list[tuple[float, int]], asked: list[tuple[float, int]], what: str) -> Iterable[str]:
    known.sort()
    greatest, at = -1, 0
    for instant, number in asked:
        while at < len(known) and known[at][0] < instant:
            greatest = max(greatest, known[at][1])
            at += 1
        if number <= greatest:
            yield f"{what}: {number} was asked for after {greatest} had been seen"


def _acks_count_once(log: Log) -> Iterable[str]:
    """A successful ack ends a message: no later lease, and no second ack."""
    last: dict[tuple[str, str], int] = defaultdict(int)
    for got in log.got:
        last[got.queue, got.id] = max(last[got.queue, got.id], got.token)
    done: dict[tuple[str, str], int] = {}
    for ack in log.acked:
        if ack.outcome != "done":
            continue
        place = ack.queue, ack.id
        if place in done:
            yield f"{place} was acked twice, under {done[place]} and under {ack.token}"
        done[place] = ack.token
        if last[place] > ack.token:
            yield f"{place} was acked under the stale token {ack.token}, after it had been leased under {last[place]}"


def _nothing_is_lost(log: Log) -> Iterable[str]:
    """Every message that was answered with an id was acked, or may have been."""
    ended = {(ack.queue, ack.id) for ack in log.acked if ack.outcome != "refused"}
    came = {(got.queue, got.id) for got in log.got}
    for sent in log.sent:
        if sent.id is not None and (sent.queue, sent.id) not in ended:
            what = "came but was never acked" if (sent.queue, sent.id) in came else "never came"
            yield f"{sent.name} was enqueued to {sent.queue} as {sent.id} and {what}"


def _throttle_holds(name: str, throttle: Throttle, got: Sequence[Got]) -> Iterable[str]:
    """In no window is more handed out than rate times length plus burst."""
    slack = 1 + throttle.rate / 1_000  # instants are whole milliseconds
    level, before = throttle.burst, 0
    for leased_ms in sorted(each.leased_ms for each in got if each.throttle == name):
        level = min(throttle.burst, level + throttle.rate * (leased_ms - before) / 1_000) - 1
        before = leased_ms
        if level < -slack:
            yield f"throttle {name} let {-level:.1f} too many go at {leased_ms}"
            return
