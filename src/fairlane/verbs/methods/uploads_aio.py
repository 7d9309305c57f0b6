"""Methods about large payloads, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from fairlane.model.message import Key
from fairlane.model.uploads import UploadView
from fairlane.verbs.methods.base_aio import AsyncVerbs
from fairlane.verbs.uploads import BeginUpload, DropUpload, ListUploads, PayloadRange, ReadPayload, UploadPiece


class AsyncUploadVerbs(AsyncVerbs):
    """Methods for producers and consumers of large payloads. Clients have ``enqueue_stream``, which uses them all."""

    async def begin_upload(self, queue: str, *, fairness_key: Key | None = None, size: int | None = None) -> UploadView:
        """Begin to upload a payload in pieces, for a message that names the upload when it is enqueued.

        In a queue that is split, ``fairness_key`` is the one that the message will have. With ``size``, a payload that
        is too large is refused at once.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge, TooManyUploads: no upload was begun.
        """
        return await self.call(BeginUpload(queue=queue, fairness_key=fairness_key, size=size))

    async def upload_piece(self, queue: str, upload_id: str, index: int, data: bytes) -> None:
        """Store a piece of an upload. Pieces are numbered from 0, and all but the last have ``piece_bytes``.

        They may come in any order, and one that is already there is not stored again.

        Raises:
            QueueNotFound, UploadNotFound, Forbidden, InvalidArgument, UploadMismatch: it was not stored.
            PayloadTooLarge, TooManyUploads, TooManyWaiters, GlobalFull: a limit was reached.
        """
        await self.call(UploadPiece(queue=queue, id=upload_id, index=index, data=data))

    async def drop_upload(self, queue: str, upload_id: str) -> None:
        """Drop an upload and its pieces, if it is still open.

        Raises:
            QueueNotFound, Forbidden: it was not dropped.
        """
        await self.call(DropUpload(queue=queue, id=upload_id))

    async def uploads(self, queue: str) -> list[UploadView]:
        """Return the open uploads of a queue, the oldest first.

        Raises:
            QueueNotFound: there is no such queue.
        """
        answer = await self.call(ListUploads(queue=queue))
        return answer.uploads

    async def read_payload(
        self, queue: str, message_id: str, *, token: int | None = None, offset: int = 0, count: int | None = None
    ) -> PayloadRange:
        """Return part of a message's payload from an offset on; of an uploaded one, at most the rest of a piece.

        With the token of a lease it is read only while the lease lasts; without one, as ``get`` does.

        Raises:
            QueueNotFound, MessageNotFound, LeaseMismatch, InvalidArgument: it was not read.
        """
        return await self.call(ReadPayload(queue=queue, id=message_id, token=token, offset=offset, count=count))
