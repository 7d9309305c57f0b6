"""A store that counts what is asked of it, so that work is measured without a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fairlane.adapters.memory.store import MemoryStore
from fairlane.ports.store import Commit, Extent, StoredPage


class CountingStore:
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.asked: Counter[str] = Counter()

    def recover(self) -> Extent:
        return self._inner.recover()

    def check_owned(self) -> None:
        self._inner.check_owned()

    def write(self, commit: Commit) -> None:
        self.asked["write"] += 1
        self._inner.write(commit)

    def sync(self) -> None:
        self.asked["sync"] += 1
        self._inner.sync()

    def pages(self, after: int) -> Iterator[StoredPage]:
        self.asked["pages"] += 1
        return self._inner.pages(after)

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        self.asked["bodies"] += 1
        return self._inner.bodies(numbers)

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()
