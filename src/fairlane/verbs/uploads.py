"""Verbs about large payloads: upload them in pieces before the enqueue, and read them in ranges."""

from __future__ import annotations

from fairlane.model.bounds import RequestKey
from fairlane.model.uploads import UploadView
from fairlane.verbs.verb import Done, Request, Shape, Verb


@Verb(
    name="begin_upload",
    path="queue/upload/begin",
    right="produce",
    # An upload whose answer was lost is dropped after a silence.
    repeat="always",
    spread="by_key",
    is_new_work=True,
    may_create=True,
    service="Broker",
)
class BeginUpload(Request[UploadView], frozen=True, kw_only=True):
    """Begin to upload a payload that is too large for one request.

    Attributes:
        fairness_key: the fairness key that the message will have. It matters only in a queue that is split, where it
            decides which partition keeps the payload.
        size: the size of the payload, if it is known: one that is too large is refused before it is uploaded, and no
            message takes an upload that has another size.
    """

    queue: str
    fairness_key: RequestKey | None = None
    size: int | None = None


@Verb(
    name="upload_piece",
    path="queue/upload/piece",
    right="produce",
    repeat="always",
    spread="by_id",
    service="Broker",
)
class UploadPiece(Request[Done], frozen=True, kw_only=True):
    """Store a piece of an upload. Pieces may come in any order; one that is there already is not stored again.

    Attributes:
        id: the upload.
        index: the number of the piece, from 0.
        data: as many bytes as the pieces of the upload have; the last piece may have fewer.
    """

    queue: str
    id: str
    index: int = 0
    data: bytes = b""


@Verb(name="drop_upload", path="queue/upload/drop", right="produce", repeat="always", spread="by_id", service="Broker")
class DropUpload(Request[Done], frozen=True, kw_only=True):
    """Drop an upload and its pieces. One that does not exist any more is no error."""

    queue: str
    id: str


class UploadList(Shape, frozen=True, kw_only=True):
    """The open uploads of a queue, the oldest first."""

    uploads: list[UploadView]


@Verb(name="uploads", path="queue/upload/list", right="produce", repeat="always", spread="all", service="Broker")
class ListUploads(Request[UploadList], frozen=True, kw_only=True):
    """Return the open uploads of a queue."""

    queue: str


class PayloadRange(Shape, frozen=True, kw_only=True):
    """A part of a payload.

    Attributes:
        size: the size of the whole payload.
    """

    data: bytes
    size: int


@Verb(
    name="read_payload",
    path="queue/payload",
    right="consume",
    repeat="always",
    spread="by_id",
    is_look=True,
    service="Broker",
)
class ReadPayload(Request[PayloadRange], frozen=True, kw_only=True):
    """Return a part of the payload of a message. It ends at the latest where a piece of an uploaded payload does.

    A read under a lease that gets further than all before it extends the lease when a third of it is over, for the time
    that the lease was for. So a consumer that gets on keeps the message, and one that stalls loses it.

    Attributes:
        token: the fencing token of the lease under which the payload is read; null to read it without a lease, as
            ``get`` does.
        offset: the first byte.
        count: the most bytes; by default up to the end of the piece.
    """

    queue: str
    id: str
    token: int | None = None
    offset: int = 0
    count: int | None = None
