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
numbers: a look at one block, with at most as many runs as numbers, finds a number. The usual enqueue has numbers above
all earlier ones and needs no look.

*Whose.* Runs are kept for each caller, which is the name of an API key, then for each queue and producer. So no caller
can meet, guess or crowd out the producers of another.

*How long.* A run counts for the ``dedup_window_ms`` of its queue, as a dedup id does. A number whose window is over is
new, and a producer without runs is forgotten.

*How much.* The runs of a caller have numbers in at most ``BLOCKS_MAX`` blocks. Beyond that its oldest runs are
forgotten before their time, and the numbers up to there become the *floor* of their producer: a number below it that is
in no run may be a repeat. It is refused (``RepeatTooLate``), since a message that may be missing is reported, and one
that is there twice is not. A producer of which nothing is left is taken for new: an API key that invents producers to
use up the room shortens its own memory, and no other.

*Waiting.* An enqueue that waits for capacity was looked up when it came, and no repeat of it is taken in before it. So
the floor, which may have risen meanwhile, does not apply to it.

*Recovery.* Records of enqueues have the numbers. When the base moves, all runs of a caller are carried as one image.
Until the image comes, a recovery knows only what was enqueued since the base; the image then replaces that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from fairlane.journal.records import CallerImage, NumberedRun, ProducerImage

BLOCKS_MAX: Final = 50_000
"""Blocks in which one caller's runs may have numbers: 10 to 40 MB, the most if each run has a producer of its own."""
_BLOCK: Final = 128


class KnownProducer:
    """A producer in one queue.

    Attributes:
        floor: numbers below it may have been forgotten.
        top: no number above it has been enqueued.
        runs: how many runs it has.
    """

    __slots__ = ("_blocks", "floor", "producer", "queue", "runs", "top")

    def __init__(self, queue: str, producer: str, floor: int = 0) -> None:
        self.queue = queue
        self.producer = producer
        self.floor = floor
        self.top = floor - 1
        self.runs = 0
        self._blocks: dict[int, tuple[NumberedRun, ...]] = {}

    def add(self, run: NumberedRun) -> None:
        """Remember a run."""
        blocks = self._blocks
        for block in _blocks_of(run):
            blocks[block] = (*blocks.get(block, ()), run)
        self.runs += 1
        self.top = max(self.top, last_of(run))

    def remove(self, run: NumberedRun) -> None:
        """Forget a run."""
        for block in _blocks_of(run):
            left = tuple(other for other in self._blocks[block] if other is not run)
            if left:
                self._blocks[block] = left
            else:
                del self._blocks[block]
        self.runs -= 1

    def sequence_of(self, number: int, now_ms: int) -> int | None:
        """Return the sequence that a message was enqueued under; None if it is in no run that still counts."""
        for run in self._blocks.get(number // _BLOCK, ()):
            place = _place_in(run, number)
            if place is not None and run.until_ms > now_ms:
                return run.sequence + place
        return None


class ProducerNumbers:
    """The producers of one caller, and their runs in the order in which they came.

    Attributes:
        home: the sequence of the oldest record that recovery needs for them.
        runs, owners: the runs, the oldest first, and the producer of each.
        blocks: in how many blocks they have numbers, each counted for itself.
    """

    def __init__(self, home: int, *, blocks_max: int = BLOCKS_MAX) -> None:
        self.home = home
        self.runs: deque[NumberedRun] = deque()
        self.owners: deque[KnownProducer] = deque()
        self.blocks = 0
        self._blocks_max = blocks_max
        self._producers: dict[tuple[str, str], KnownProducer] = {}

    def find(self, queue: str, producer: str) -> KnownProducer | None:
        """Return a producer in a queue; None if nothing is known of it."""
        return self._producers.get((queue, producer))

    def add(self, queue: str, producer: str, run: NumberedRun) -> None:
        """Remember a run, and forget the oldest ones if there are too many."""
        known = self._producers.get((queue, producer))
        if known is None:
            known = self._producers[queue, producer] = KnownProducer(queue, producer)
        self._append(known, run)
        while self.blocks > self._blocks_max:
            oldest, owner = self._pop()
            owner.floor = max(owner.floor, last_of(oldest) + 1)

    def expire(self, now_ms: int) -> None:
        """Forget the oldest runs, as far as their window is over."""
        while self.runs and self.runs[0].until_ms <= now_ms:
            self._pop()

    def remove_queue(self, queue: str) -> None:
        """Forget everything about a queue."""
        if any(name == queue for name, _ in self._producers):
            kept = [pair for pair in zip(self.owners, self.runs, strict=True) if pair[0].queue != queue]
            self.owners, self.runs = deque(owner for owner, _ in kept), deque(run for _, run in kept)
            self.blocks = sum(len(_blocks_of(run)) for run in self.runs)
            self._producers = {key: known for key, known in self._producers.items() if key[0] != queue}

    def _append(self, known: KnownProducer, run: NumberedRun) -> None:
        known.add(run)
        self.runs.append(run)
        self.owners.append(known)
        self.blocks += len(_blocks_of(run))

    def _pop(self) -> tuple[NumberedRun, KnownProducer]:
        run, owner = self.runs.popleft(), self.owners.popleft()
        self.blocks -= len(_blocks_of(run))
        owner.remove(run)
        if not owner.runs:
            del self._producers[owner.queue, owner.producer]
        return run, owner

    # ---------------------------------------------------------------------------------------------------------- images

    def image(self, caller: str) -> CallerImage:
        """Return everything about the caller's producers."""
        places = {known: at for at, known in enumerate(self._producers.values())}
        producers = [ProducerImage(known.queue, known.producer, known.floor) for known in places]
        return CallerImage(caller, producers, [places[owner] for owner in self.owners], list(self.runs))

    @classmethod
    def of(cls, image: CallerImage, home: int) -> ProducerNumbers:
        """Return what an image has."""
        made = cls(home)
        known = [KnownProducer(one.queue, one.producer, one.floor) for one in image.producers]
        made._producers = {(one.queue, one.producer): one for one in known}
        for owner, run in zip(image.owners, image.runs, strict=True):
            made._append(known[owner], run)
        return made


# ----------------------------------------------------------------------------------------------------------------- runs


def run_of(numbers: Sequence[int], count: int, sequence: int, until_ms: int) -> NumberedRun:
    """Return the run of new messages.

    Args:
        numbers: the number of each message, or only the first if the others follow it.
        count: how many messages there are.
        sequence: the sequence of the first.
        until_ms: when their window is over.
    """
    first = numbers[0]
    if len(numbers) == 1 or numbers[-1] - first == count - 1:
        return NumberedRun(first, count, sequence, until_ms)
    base = first - first % _BLOCK
    bitmap = bytearray((numbers[-1] - base) // 8 + 1)
    for number in numbers:
        bitmap[(number - base) >> 3] |= 1 << (number & 7)
    return NumberedRun(first, count, sequence, until_ms, bytes(bitmap))


def last_of(run: NumberedRun) -> int:
    """Return the highest number of a run."""
    if run.bitmap is None:
        return run.first + run.count - 1
    return _base_of(run) + 8 * (len(run.bitmap) - 1) + run.bitmap[-1].bit_length() - 1


def _base_of(run: NumberedRun) -> int:
    """Return the number that the first bit of a bitmap stands for: the first of its block."""
    return run.first - run.first % _BLOCK


def _blocks_of(run: NumberedRun) -> Sequence[int]:
    """Return the blocks in which a run has numbers."""
    blocks = range(run.first // _BLOCK, last_of(run) // _BLOCK + 1)
    if run.bitmap is None:
        return blocks
    size = _BLOCK // 8
    return [block for at, block in enumerate(blocks) if any(run.bitmap[at * size : (at + 1) * size])]


def _place_in(run: NumberedRun, number: int) -> int | None:
    """Return how many messages of a run come before a number; None if the number is not in the run."""
    if run.bitmap is None:
        offset = number - run.first
        return offset if 0 <= offset < run.count else None
    offset = number - _base_of(run)
    byte = offset >> 3
    if not (0 <= byte < len(run.bitmap) and run.bitmap[byte] >> (offset & 7) & 1):
        return None
    return (int.from_bytes(run.bitmap, "little") & ((1 << offset) - 1)).bit_count()
