"""Damage to the simulated disk: a broker on a damaged copy must refuse it, or lose nothing.

The copy is damaged, not the disk, and all chances are drawn from a generator of their own. So a seed runs as it would
without, as if an operator had always put the intact files back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import msgspec

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.engine.engine import Engine
from fairlane.core.ledger import Message
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Extent, StoredPage
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import violated

Damage = Literal["flipped_page", "missing_page", "flipped_body", "missing_body", "lost_end"]
"""The kinds of damage.

- ``flipped_page``, ``flipped_body``: it can't be read, since its checksum is wrong.
- ``missing_page``, ``missing_body``: it is not there.
- ``lost_end``: the last pages are gone, and nothing is left that tells so but the reservation of sequences.
"""
DAMAGES: tuple[Damage, ...] = get_args(Damage)


class DamagedStore(MemoryStore):
    """A copy of a store in which one page or body is damaged, or the end is missing."""

    def __init__(self, intact: MemoryStore, damage: Damage, chance: random.Random) -> None:
        super().__init__()
        self._pages, self._starts = intact._pages.copy(), intact._starts.copy()
        self._bodies, self._extent = intact._bodies.copy(), intact._extent
        self.damage = damage
        self.page = chance.choice(self._starts) if self._starts else 0
        self.body = chance.choice(sorted(self._bodies)) if self._bodies else 0
        self.reserved = 0
        if damage == "lost_end":
            self._lose_end(chance)

    def _lose_end(self, chance: random.Random) -> None:
        """Lose the pages from one on, but none that recovery begins with."""
        extent = self._extent
        self.page = chance.choice([start for start in self._starts if start > extent.base] or [extent.next_sequence])
        self.reserved = extent.next_sequence
        self._starts = [start for start in self._starts if start < self.page]
        self._extent = Extent(first=extent.first, base=extent.base, next_sequence=self.page)

    def recover(self) -> Extent:
        extent = super().recover()
        return msgspec.structs.replace(extent, reserved=self.reserved)

    def pages(self, after: int) -> Iterator[StoredPage]:
        for page in super().pages(after):
            if page.sequence == self.page and self.damage == "flipped_page":
                raise StoreCorrupt(f"The page at {page.sequence} has another checksum (injected fault).")
            if page.sequence != self.page or self.damage != "missing_page":
                yield page

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        if self.body in numbers and self.damage == "flipped_body":
            raise StoreCorrupt(f"Body {self.body} has another checksum (injected fault).")
        is_missing = self.damage == "missing_body"
        found = super().bodies(numbers)
        return [
            None if is_missing and number == self.body else data for number, data in zip(numbers, found, strict=True)
        ]


def try_damaged(
    store: DamagedStore, make_engine: Callable[[DamagedStore], Engine], auditor: Auditor, tried: Counter[str]
) -> None:
    """Open a broker on a damaged store, and check that it refuses, or has all that is durable."""
    engine = make_engine(store)
    try:
        engine.open()
    except StoreCorrupt:
        tried[f"{store.damage}:refused"] += 1
        return
    tried[f"{store.damage}:opened"] += 1
    if store.damage == "lost_end":
        _check_skips(engine, store)
        return
    auditor.check_ledger(engine.ledger, engine.now_ms())
    if store.damage in ("flipped_body", "missing_body"):
        _check_bodies_are_refused(engine, store)


def _check_skips(engine: Engine, store: DamagedStore) -> None:
    """Check that no sequence is issued again that a broker issued before the end was lost."""
    cycle = engine.begin()
    engine.write(cycle)
    first = next(record.sequence for record in cycle.records if type(record).__name__ == "Opened")
    if first < store.reserved:
        violated(f"after the store lost its end, sequence {first} is issued again; {store.reserved} were reserved")


def _check_bodies_are_refused(engine: Engine, store: DamagedStore) -> None:
    """Check that a message whose body is damaged is an error, and never an empty or another message."""
    for message in _messages(engine):
        if message.body_number != store.body:
            continue
        try:
            engine.bodies.read([message])
        except StoreCorrupt:
            continue
        violated(f"message {message.number} was read, though its body {store.body} is damaged")


def _messages(engine: Engine) -> Iterator[Message]:
    for queue in engine.ledger.queues.values():
        yield from queue.messages.values()
