"""The recorder: follows the journal of a live broker, and exports its last window for what-if."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from fairlane.model.views import QueueView
from fairlane.spark.tune.tape import Tape
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.measures import MeasuredPeriod
from fairlane.spark.whatif.scenario import Scenario
from fairlane.verbs.config import TemporaryValue
from fairlane.verbs.journal import Events, OnTrimmed

_EVENTS: Final = 10_000


class TunedBroker(Protocol):
    """What a tuner needs of a broker."""

    def queue(self, queue: str) -> QueueView:
        """Return a queue."""

    def queues(self) -> list[QueueView]:
        """Return all queues."""

    def read_journal(
        self, after: int = 0, *, count: int = ..., queue: str | None = None, on_trimmed: OnTrimmed = ...
    ) -> Events:
        """Return events after a position."""

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return config values."""

    def list_temporary_config(self, prefix: str = "") -> list[TemporaryValue]:
        """Return the config values that expire."""

    def set_config_many(
        self,
        values: Mapping[str, str | None],
        *,
        owner: str | None = None,
        reason: str | None = None,
        expire_after_ms: int | None = None,
    ) -> None:
        """Set config values."""


class Recorder:
    """The last window of the journal of a queue.

    Attributes:
        tape: the window.
    """

    def __init__(self, broker: TunedBroker, *, queue: str, window_ms: int) -> None:
        self._broker = broker
        self._queue = queue
        self._window_ms = window_ms
        self._position = 0
        self._journal_id = ""
        self.tape = Tape()

    def read(self) -> None:
        """Read the journal to its end."""
        while True:
            found = self._broker.read_journal(self._position, count=_EVENTS, queue=self._queue, on_trimmed="skip")
            if found.position <= self._position:
                return
            is_first, self._position, self._journal_id = not self._position, found.position, found.journal_id
            self.tape.add(found.events, keep_ms=2 * self._window_ms)
            if is_first and found.events and found.events[0]["sequence"] > 1:
                policies = {one.name: one.policy for one in self._broker.queues()}
                self.tape.assume(policies, self._broker.list_config())

    @contextmanager
    def exported(self, *scenarios: Scenario) -> Iterator[tuple[Journal, Comparison]]:
        """Return the window as an exported journal, and what the original settings and scenarios give on it."""
        with TemporaryDirectory(prefix="fairlane-tune-") as folder:
            self.tape.write(Path(folder), journal_id=self._journal_id)
            journal = Journal(folder, queues=(self._queue,))
            yield journal, compare(journal, scenarios, span=self.span())

    def span(self) -> MeasuredPeriod:
        """Return the window as a period to measure."""
        return MeasuredPeriod(from_ms=self.tape.since_ms)
