"""Methods about results, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from fairlane.model.status import StatusView
from fairlane.verbs.methods.base import Verbs
from fairlane.verbs.methods.conversions import Held, held, result_in
from fairlane.verbs.status import GetResult, GetStatus, ReportProgress


class StatusVerbs(Verbs):
    """Methods for producers, about the messages that they have enqueued."""

    def status(
        self, message_id: str, *, queue: str | None = None, wait_ms: int = 0, after: str | None = None
    ) -> StatusView:
        """Return the status of a message: where it waits, who works on it, or how it ended.

        With ``wait_ms`` it waits for the end of the message; with ``after``, the ``version`` of an earlier status, for
        any change. A message that has ended is known for its ``result_ttl_ms``, and then as far as the journal goes. A
        cluster finds the message faster if its queue is given.

        Raises:
            MessageNotFound: no such message is known.
        """
        return self.call(GetStatus(id=message_id, queue=queue, wait_ms=wait_ms, after=after))

    def result(self, message_id: str, *, queue: str | None = None, wait_ms: int = 0) -> bytes | None:
        """Return the result of a message, waiting up to ``wait_ms`` for its end.

        Returns None for a message that was acknowledged without a result, or whose result is no longer kept.

        Raises:
            WaitTimedOut: the message has not ended yet.
            MessageCancelled, MessageDead, DeadlinePassed, Dropped: it ended without a result.
            MessageNotFound: no such message is known.
        """
        return result_in(self.call(GetResult(id=message_id, queue=queue, wait_ms=wait_ms)))

    def report_progress(self, message: Held, fraction: float | None = None, *, note: str = "") -> None:
        """Report how far a leased message has come: a fraction from 0 to 1, a short note, or both.

        The latest report is part of the message's ``status`` until the lease ends. It is not durable.

        Raises:
            MessageNotFound, LeaseMismatch, MessageCancelled: the lease has ended; stop the work.
            InvalidArgument: the fraction or the note is not valid.
        """
        queue, receipt = held(message)
        self.call(ReportProgress(queue=queue, receipt=receipt, fraction=fraction, note=note))
