"""A stream of leased messages for threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Self

from fairlane.client.message import Message, Settling
from fairlane.client.portal import Portal
from fairlane.client.stream_aio import AsyncStream
from fairlane.model.message import Delivery


class Stream:
    """A stream of leased messages: enter it with ``with``, and iterate it with ``for`` from one or several threads.

    See ``AsyncStream``.
    """

    def __init__(self, client: Settling, portal: Portal, stream: AsyncStream) -> None:
        self._client = client
        self._portal = portal
        self._stream = stream
        self._ready: deque[Delivery] = deque()
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
                return Message(self._ready.popleft(), self._client)
            except IndexError:
                self._take()

    def close(self) -> None:
        """End the stream. Threads that wait for a message stop iterating."""
        unseen = tuple(self._ready)
        self._ready.clear()
        self._portal.run(self._stream.close(unseen=unseen))

    def _take(self) -> None:
        with self._taking:
            if self._ready:
                return
            taken = self._portal.run(self._stream.take())
            if not taken:
                raise StopIteration
            self._ready.extend(taken)
