"""Progress reports of running messages: the latest of each, in memory only.

A report names the lease that it is made under, and counts while that lasts. So nothing has to be done when a lease
ends; what is left over goes when there is more of it than of leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fairlane.broker.views import queues as views
from fairlane.core.checks import is_text
from fairlane.core.decide.leases import held_under
from fairlane.core.ledger import Ledger, Message
from fairlane.errors import InvalidArgument
from fairlane.model.limits import PROGRESS_NOTE_LENGTH_MAX
from fairlane.model.status import ProgressView
from fairlane.verbs.status import ReportProgress
from fairlane.verbs.verb import Done

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

_SPARE: Final = 1_024


class _Report(NamedTuple):
    token: int
    number: int
    view: ProgressView


class ProgressReports:
    """The latest report of each message, by number."""

    def __init__(self) -> None:
        self._reports: dict[int, _Report] = {}

    def note(self, ledger: Ledger, message: Message, view: ProgressView) -> None:
        """Note a report about a leased message."""
        before = self._reports.get(message.number)
        self._reports[message.number] = _Report(message.token, 1 if before is None else before.number + 1, view)
        leased = sum(queue.leased for queue in ledger.queues.values()) if len(self._reports) > _SPARE else 0
        if len(self._reports) > _SPARE + 2 * leased:
            lasting = {
                one.number: one.token for queue in ledger.queues.values() for one in queue.messages.objects.values()
            }
            self._reports = {at: one for at, one in self._reports.items() if lasting.get(at) == one.token}

    def of(self, message: Message) -> tuple[ProgressView | None, int]:
        """Return the latest report under the present lease of a message, and the number of reports before it."""
        found = self._reports.get(message.number)
        return (None, 0) if found is None or found.token != message.token else (found.view, found.number)


def report(engine: Engine, request: ReportProgress) -> Done:
    """Note a report, and answer those who watch the message.

    Raises:
        QueueNotFound, MessageNotFound, LeaseMismatch, MessageCancelled: the caller does not have the message.
        InvalidArgument: the fraction or the note is not valid.
    """
    _check(request)
    queue = views.known(engine.ledger, request.queue)
    now_ms = engine.now_ms()
    held, outcome = held_under(engine.ledger, queue, [request.receipt], now_ms)
    if outcome[0] is not None:
        raise outcome[0]
    view = ProgressView(fraction=request.fraction, note=request.note, at_ms=now_ms)
    engine.progress.note(engine.ledger, held[0], view)
    engine.watchers.changed(engine, held[0].number)
    return Done()


def _check(request: ReportProgress) -> None:
    fraction, note = request.fraction, request.note
    if fraction is not None and not (isinstance(fraction, (int, float)) and 0 <= fraction <= 1):
        raise InvalidArgument(f"fraction must be a number from 0 to 1, not {fraction!r:.60}.")
    if type(note) is not str or len(note) > PROGRESS_NOTE_LENGTH_MAX or not is_text(note):
        raise InvalidArgument(f"A note must be text of up to {PROGRESS_NOTE_LENGTH_MAX} characters.")
