"""A stream of leased messages for threads."""

from __future__ import annotations

import threading
from functools import partial
from typing import Self

from fairlane.client.message import Message, Settling
from fairlane.client.portal import Portal
from fairlane.client.prefetched import Prefetched
from fairlane.client.stream_aio import AsyncStream


class Stream:
    """A stream of leased messages: enter it with ``with``, and iterate it with ``for`` from one or several threads.

    See ``AsyncStream``.
    """

    def __init__(self, client: Settling, portal: Portal, stream: AsyncStream) -> None:
        self._client = client
        self._portal = portal
        self._stream = stream
        self._ready = Prefetched()
        self._taking = threading.Lock()

    def __enter__(self) -> Self:
        self._portal.run(self._stream.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while True:
            try:
                ready = self._ready
                delivery = ready.waiting.popleft()
            except IndexError:
                self._take()
                continue
            if delivery.time_left_ms is None or not ready.is_late(delivery):
                message = Message(delivery, self._client)
                self._stream.note_given(message)
                return message
            self._portal.soon(partial(self._stream.give_back, [delivery]))

    def close(self) -> None:
        """End the stream. Threads that wait for a message stop iterating."""
        unseen = self._ready.withdraw()
        self._portal.run(self._stream.close(unseen=unseen))

    def _take(self) -> None:
        with self._taking:
            if self._ready:
                return
            taken = self._portal.run(self._stream.take())
            if not taken:
                raise StopIteration
            self._ready = taken
