"""How requests are taken: those that wait for something or need something first, and those that are simply decided."""

from __future__ import annotations

from typing import cast

from fairlane.broker.auto_create import still_missing
from fairlane.broker.calls import run_call
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.purges import take_purge
from fairlane.broker.requests import Call, Read
from fairlane.broker.waiting.claims import take_claim
from fairlane.broker.waiting.pieces import take_piece
from fairlane.verbs.batches import MakeClaim, Stage
from fairlane.verbs.queues import DeleteQueue, PurgeQueue
from fairlane.verbs.uploads import BeginUpload, UploadPiece


def take_call(executor: Executor, call: Call, cycle: Cycle) -> None:
    """Take a request that waits for something, needs something first, or is simply decided."""
    kind, request = type(call.request), call.request
    if kind is Stage:
        executor.sinks.take(executor, call, cycle)
    elif kind is MakeClaim:
        take_claim(executor, call, cycle)
    elif kind is UploadPiece:
        take_piece(executor, call, cycle)
    elif kind is BeginUpload:
        _take_upload(executor, call, cycle)
    elif isinstance(request, PurgeQueue | DeleteQueue):
        take_purge(executor, call, request, cycle)
    else:
        run_call(executor, call, cycle)


def _take_upload(executor: Executor, call: Call, cycle: Cycle) -> None:
    """Begin an upload, in a queue that is created first where a template says so."""
    queue = cast("BeginUpload", call.request).queue
    if queue not in executor.ledger.queues and (absent := still_missing(executor, queue, cycle, call.by)) is not None:
        cycle.answer(call.reply, absent)
    else:
        run_call(executor, call, cycle)


def take_read(read: Read, cycle: Cycle) -> None:
    """Take a question about the present, unless the cycle has one with a large answer already.

    Many large answers in one cycle would block the event loop for as long as all of them take.
    """
    if read.is_large and any(other.is_large for other in cycle.reads):
        cycle.postponed.append(read)
    else:
        cycle.reads.append(read)
