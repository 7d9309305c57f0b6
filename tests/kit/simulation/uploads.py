"""The simulation's uploaders: producers that send payloads in pieces, out of order and twice, or give up halfway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlane.broker.handlers.uploads import READS
from fairlane.broker.requests import Call
from fairlane.core.commands import Given
from fairlane.errors import FairlaneError, UploadNotFound
from fairlane.model.message import NewMessage
from fairlane.model.uploads import UploadView
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.uploads import BeginUpload, DropUpload, PayloadRange, ReadPayload, UploadPiece
from fairlane.verbs.verb import Request
from tests.kit.auditor.books import violated
from tests.kit.auditor.uploads import told_piece, told_upload_refused
from tests.kit.ids import numbered
from tests.kit.simulation.sinks import BatchWriters

_UPLOADS_MAX = 8


@dataclass(slots=True, eq=False)
class UploadTask:
    """A producer that uploads the payload of a message, and the pieces that it knows to be stored."""

    queue: str
    caller: str
    message: NewMessage
    view: UploadView
    stored: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        """The number of the upload."""
        return numbered(self.view.id)

    def pieces(self) -> list[bytes]:
        """Return the payload in pieces."""
        payload, size = self.message.payload, self.view.piece_bytes
        return [payload[at : at + size] for at in range(0, len(payload), size)]


@dataclass
class Uploaders(BatchWriters):
    """Clients that upload payloads, and consumers that read them in ranges."""

    uploads: list[UploadTask] = field(default_factory=list)

    def _ask_as(self, caller: str, label: str, request: Request[Any], judge: Any, *, wait_ms: int = 0) -> None:
        by = caller or None
        until_ms = self.world.now_ms() + wait_ms
        self.ask(label, lambda answer: Call(request, answer, by, Given(by=by)), judge, until_ms=until_ms)

    def begin_upload(self) -> None:
        """Begin an upload, and leave the oldest one alone if there are many."""
        draw, queue = self.world.workload, self._queue()
        del self.uploads[:-_UPLOADS_MAX]
        caller, message = draw.one_of("", "key"), draw.message()

        def judge(outcome: Any) -> None:
            self.world.auditor.told_missing(queue, outcome)
            if isinstance(outcome, UploadView):
                self.uploads.append(UploadTask(queue, caller, message, outcome))

        request = BeginUpload(queue=queue, size=len(message.payload))
        self._ask_as(caller, f"begin upload to {queue} as {caller!r}", request, judge)

    def upload_piece(self) -> None:
        """Send a piece of an upload, mostly one that is missing."""
        if not self.uploads:
            self.begin_upload()
            return
        draw = self.world.workload
        task = draw.chance.choice(self.uploads)
        pieces = task.pieces()
        missing = [index for index in range(len(pieces)) if index not in task.stored]
        index = draw.chance.choice(missing if missing and draw.happens(0.9) else range(len(pieces)))

        def judge(outcome: Any) -> None:
            told_piece(self.world.auditor.books, task.number, index, outcome)
            if outcome is None:
                task.stored.add(index)
            elif isinstance(outcome, UploadNotFound) and task in self.uploads:
                self.uploads.remove(task)

        request = UploadPiece(queue=task.queue, id=task.view.id, index=index, data=pieces[index])
        self._ask_as(task.caller, f"piece {index} of upload {task.number} of {task.queue}", request, judge)

    def enqueue_upload(self) -> None:
        """Enqueue a message by its upload, mostly once all pieces are stored."""
        draw = self.world.workload
        ready = [task for task in self.uploads if len(task.stored) == len(task.pieces()) or draw.happens(0.05)]
        if not ready:
            self.upload_piece()
            return
        task, auditor = draw.chance.choice(ready), self.world.auditor
        auditor.note_sent(task.queue, task.message)
        wait_ms = draw.one_of(0, 0, 500, 10_000)
        if task.number in auditor.books.uploads:
            auditor.books.uploads[task.number].is_named = True

        def judge(outcome: Any) -> None:
            auditor.told_missing(task.queue, outcome)
            auditor.told_enqueued(task.queue, [task.message], outcome)
            result = outcome[0] if isinstance(outcome, list) else None
            told_upload_refused(auditor.books, task.number, result)
            if isinstance(result, (str, UploadNotFound)) and task in self.uploads:
                self.uploads.remove(task)

        message = msgspec.structs.replace(task.message, payload=b"", upload=task.view.id)
        request = Enqueue(queue=task.queue, messages=[message], wait_ms=wait_ms)
        self._ask_as(task.caller, f"enqueue upload {task.number} to {task.queue}", request, judge, wait_ms=wait_ms)

    def drop_upload(self) -> None:
        """Give up an upload."""
        if self.uploads:
            task = self.uploads.pop(self.world.workload.chance.randrange(len(self.uploads)))
            self._drop_upload(task.queue, task.view.id, task.caller)

    def drop_all_uploads(self) -> None:
        """Give up all uploads that are open."""
        self.uploads.clear()
        for upload in list(self.world.auditor.books.uploads.values()):
            self._drop_upload(upload.queue, f"{upload.number:016x}", upload.caller)

    def _drop_upload(self, queue: str, upload_id: str, caller: str) -> None:
        self._ask_as(caller, f"drop upload {upload_id}", DropUpload(queue=queue, id=upload_id), lambda _outcome: None)

    def read_payload(self) -> None:
        """Read some of the payload of a leased message, and compare it with what was sent."""
        if not self.held:
            return
        draw, auditor = self.world.workload, self.world.auditor
        delivery = draw.chance.choice(self.held).delivery
        sent = auditor.books.births[numbered(delivery.id)].message.payload
        offset, count = draw.chance.randint(0, len(sent)), draw.one_of(None, 1, 30)
        request = ReadPayload(
            queue=delivery.queue, id=delivery.id, token=draw.one_of(None, delivery.token), offset=offset, count=count
        )

        def judge(outcome: Any) -> None:
            if isinstance(outcome, FairlaneError):
                return
            data = outcome.data if isinstance(outcome, PayloadRange) else b""
            is_short = not data and offset < len(sent)
            if outcome.size != len(sent) or not sent[offset:].startswith(data) or is_short:
                violated(f"{request} was answered {outcome}, sent was {sent!r}")

        engine = self.world.engine
        self.read(f"read payload {request}", lambda: READS[ReadPayload](engine, request), judge)
