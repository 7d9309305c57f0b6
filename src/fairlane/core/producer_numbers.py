"""Producer numbers: how the broker recognises an enqueue that a client repeats because its answer was lost.

Theory of operation
-------------------
A client object is a *producer*: it has a random id, and numbers its messages 0, 1, 2, ... An enqueue carries the
producer and the numbers of its messages; a repeat carries the same ones, also where it goes another way or has only
some of the messages. The broker keeps for each enqueue one *run*: the first number, how many, and the sequence of the
first message. Messages that were enqueued together have consecutive sequences, so the ids of the first time follow from
that. What is kept does not grow with the number of messages.

*What a repeat gets.* The id of the first time, whatever has become of the message since. A message that was refused has
left no trace; it is decided as if it were new, since nothing of it was ever enqueued.

*Gaps and order.* A run has gaps if some messages of a batch were refused, or went to other partitions; then it has a
bitmap. Runs come in any order, because requests overtake each other. So each producer has its runs by *block* of
numbers: a look at two blocks, with at most as many runs as numbers, finds a number. The usual enqueue has numbers above
all earlier ones and needs no look. Short runs that begin in one block within seconds are joined in one array.

*Whose.* Runs are kept for each caller, which is the name of an API key, then for each queue and producer. So no caller
can meet, guess or crowd out the producers of another.

*How long.* A run counts for the ``dedup_window_ms`` of its queue, as a dedup id does. A number whose window is over is
new, and a producer without runs is forgotten.

*How much.* The runs of a caller have a weight: eight for each block, and one for each run. Beyond ``WEIGHT_MAX`` its
oldest runs are forgotten before their time, and the numbers up to there become the *floor* of their producer: a number
below it that is in no run may be a repeat. It is refused (``RepeatTooLate``), since a message that may be missing is
reported, and one that is there twice is not. The floor outlives the last run of its producer: it is kept until the
window of the forgotten runs is over. Only the number of such producers is bounded, by ``FLOORS_MAX``, and one beyond
it is taken for new: an API key that invents producers by the ten thousands shortens its own memory, and no other.

*Waiting.* An enqueue that waits for capacity was looked up when it came, and no repeat of it is taken in before it. So
the floor, which may have risen meanwhile, does not apply to it.

*Recovery.* Records of enqueues have the numbers. When the base moves, all runs and floors of a caller are carried as
one image. Until the image comes, a recovery knows only what was enqueued since the base; the image then replaces that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from fairlane.core.numbered_runs import BLOCK, Entry, JoinedRuns, LoneRun, entry_of
from fairlane.journal.records import CallerImage, NumberedRun, ProducerImage

WEIGHT_MAX: Final = 400_000
"""What one caller's runs may weigh: 14 to 37 MB, the most if each run has a producer of its own."""
FLOORS_MAX: Final = 50_000
"""How many producers of one caller may have a floor and no runs; 20 MB."""
_BLOCK_WEIGHT: Final = 8


class KnownProducer:
    """A producer in one queue.

    Attributes:
        name: the queue and the producer.
        floor: numbers below it may have been forgotten.
        floor_until_ms: when the windows of the numbers that have been forgotten are over.
        top: no number above it has been enqueued.
        entries: how many runs, or arrays of runs, it has.
    """

    __slots__ = ("_blocks", "entries", "floor", "floor_until_ms", "name", "top")

    def __init__(self, queue: str, producer: str, floor: int = 0, floor_until_ms: int = 0) -> None:
        self.name = (queue, producer)
        self.floor = floor
        self.floor_until_ms = floor_until_ms
        self.top = floor - 1
        self.entries = 0
        self._blocks: dict[int, tuple[Entry, ...]] = {}

    def join(self, run: NumberedRun) -> Entry | None:
        """Return the entry that a run needs; None if the run has been joined with others."""
        if run.bitmap is not None or run.count > BLOCK:
            return LoneRun(run)
        others = self._blocks.get(run.first // BLOCK, ())
        latest = others[-1] if others else None
        if isinstance(latest, JoinedRuns) and latest.join(run):
            self.top = max(self.top, run.first + run.count - 1)
            return None
        return JoinedRuns((run.first, run.count, run.sequence, run.until_ms))

    def add(self, entry: Entry) -> None:
        """Remember a run, or an array of them."""
        blocks = self._blocks
        for block in entry.blocks:
            blocks[block] = (*blocks.get(block, ()), entry)
        self.entries += 1
        self.top = max(self.top, entry.last)

    def remove(self, entry: Entry) -> None:
        """Forget a run, or an array of them."""
        for block in entry.blocks:
            left = tuple(other for other in self._blocks[block] if other is not entry)
            if left:
                self._blocks[block] = left
            else:
                del self._blocks[block]
        self.entries -= 1
        if not self.entries:
            self._blocks = {}  # the old one is still as large as it was

    def raise_floor(self, forgotten: Entry) -> None:
        """Note that the numbers of an entry have been forgotten before their time."""
        self.floor = max(self.floor, forgotten.last + 1)
        self.floor_until_ms = max(self.floor_until_ms, forgotten.until_ms)

    def sequence_of(self, number: int, now_ms: int) -> int | None:
        """Return the sequence that a message was enqueued under; None if it is in no run that still counts."""
        block = number // BLOCK  # an array has only runs that begin in its block, and that may end in the next
        for entry in (*self._blocks.get(block, ()), *self._blocks.get(block - 1, ())):
            found = entry.sequence_of(number, now_ms)
            if found is not None:
                return found
        return None


class ProducerNumbers:
    """The producers of one caller, and their runs in the order in which they came.

    Attributes:
        home: the sequence of the oldest record that recovery needs for them.
        entries, owners: the runs and arrays of runs, the oldest first, and the producer of each.
        runs: how many runs there are.
        weight: what all runs weigh.
    """

    def __init__(self, home: int, *, weight_max: int = WEIGHT_MAX, floors_max: int = FLOORS_MAX) -> None:
        self.home = home
        self.entries: deque[Entry] = deque()
        self.owners: deque[KnownProducer] = deque()
        self.runs = self.weight = 0
        self._weight_max = weight_max
        self._floors_max = floors_max
        self._producers: dict[tuple[str, str], KnownProducer] = {}
        self._floors: OrderedDict[tuple[str, str], KnownProducer] = OrderedDict()  # those without runs, oldest first

    def __len__(self) -> int:
        """Return how many runs there are, and how many floors without runs."""
        return self.runs + len(self._floors)

    def find(self, queue: str, producer: str) -> KnownProducer | None:
        """Return a producer in a queue; None if nothing is known of it."""
        return self._producers.get((queue, producer))

    def all_runs(self) -> Iterator[tuple[KnownProducer, NumberedRun]]:
        """Yield each run with its producer."""
        for owner, entry in zip(self.owners, self.entries, strict=True):
            for run in entry.runs():
                yield owner, run

    def floors(self) -> list[KnownProducer]:
        """Return the producers that have a floor and no runs, the oldest first."""
        return list(self._floors.values())

    def add(self, queue: str, producer: str, run: NumberedRun) -> None:
        """Remember a run, and forget the oldest ones if there are too many."""
        known = self._producers.get((queue, producer))
        if known is None:
            known = KnownProducer(queue, producer)
            self._producers[known.name] = known
        entry = known.join(run)
        if entry is None:
            self.runs += 1
            self.weight += 1
        else:
            self._append(known, entry)
        while self.weight > self._weight_max:
            self._forget_oldest()

    def expire(self, now_ms: int) -> None:
        """Forget the oldest runs and floors, as far as their window is over."""
        while self.entries and self.entries[0].until_ms <= now_ms:
            _, owner = self._pop()
            if not owner.entries:
                self._keep_floor(owner, now_ms)
        while self._floors and next(iter(self._floors.values())).floor_until_ms <= now_ms:
            self._drop_floor()

    def remove_queue(self, queue: str) -> None:
        """Forget everything about a queue."""
        if any(name == queue for name, _ in self._producers):
            kept = [pair for pair in zip(self.owners, self.entries, strict=True) if pair[0].name[0] != queue]
            self.owners, self.entries = deque(owner for owner, _ in kept), deque(entry for _, entry in kept)
            self.runs = sum(map(len, self.entries))
            self.weight = sum(map(_weight_of, self.entries))
            self._producers = {key: known for key, known in self._producers.items() if key[0] != queue}
            self._floors = OrderedDict((key, known) for key, known in self._floors.items() if key[0] != queue)

    def _append(self, known: KnownProducer, entry: Entry) -> None:
        self._floors.pop(known.name, None)
        known.add(entry)
        self.entries.append(entry)
        self.owners.append(known)
        self.runs += len(entry)
        self.weight += _weight_of(entry)

    def _pop(self) -> tuple[Entry, KnownProducer]:
        entry, owner = self.entries.popleft(), self.owners.popleft()
        self.runs -= len(entry)
        self.weight -= _weight_of(entry)
        owner.remove(entry)
        return entry, owner

    def _forget_oldest(self) -> None:
        """Forget the oldest entry before its time; only its producer's floor is left."""
        entry, owner = self._pop()
        owner.raise_floor(entry)
        if not owner.entries:
            self._floors[owner.name] = owner
        if len(self._floors) > self._floors_max:
            self._drop_floor()

    def _keep_floor(self, owner: KnownProducer, now_ms: int) -> None:
        """Forget a producer without runs, unless its floor still counts."""
        if owner.floor_until_ms > now_ms:
            self._floors[owner.name] = owner
        else:
            del self._producers[owner.name]

    def _drop_floor(self) -> None:
        name, _ = self._floors.popitem(last=False)
        del self._producers[name]

    # ---------------------------------------------------------------------------------------------------------- images

    def image(self, caller: str) -> CallerImage:
        """Return everything about the caller's producers."""
        ordered = [*(known for known in self._producers.values() if known.entries), *self._floors.values()]
        places = {known: at for at, known in enumerate(ordered)}
        producers = [ProducerImage(*known.name, known.floor, known.floor_until_ms) for known in ordered]
        entries = [entry.image() for entry in self.entries]
        return CallerImage(caller, producers, [places[owner] for owner in self.owners], entries)

    @classmethod
    def of(cls, image: CallerImage, home: int) -> ProducerNumbers:
        """Return what an image has."""
        made = cls(home)
        known = [KnownProducer(one.queue, one.producer, one.floor, one.floor_until_ms) for one in image.producers]
        made._producers = {one.name: one for one in known}
        for owner, entry in zip(image.owners, image.runs, strict=True):
            made._append(known[owner], entry_of(entry))
        made._floors.update((one.name, one) for one in known if not one.entries)
        return made


def _weight_of(entry: Entry) -> int:
    return _BLOCK_WEIGHT * len(entry.blocks) + len(entry)
