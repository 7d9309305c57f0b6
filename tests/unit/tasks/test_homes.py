"""Which client an app uses in which event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

from fairlane.client import AsyncClient
from fairlane.embedded import EmbeddedTransport
from fairlane.tasks.homes import AppHomes

SHORT_S = 0.2


class Watched(asyncio.SelectorEventLoop):
    """A loop that runs something once while the homes look through the loops that they know."""

    beside: threading.Thread | None = None

    def is_closed(self) -> bool:
        beside, self.beside = self.beside, None
        if beside is not None:
            beside.start()
            beside.join(SHORT_S)  # it has to wait for the lock
        return super().is_closed()


def test_two_loops_that_begin_at_once_keep_their_clients() -> None:
    """Neither forgets the client of the other, which would stay open."""
    made: list[AsyncClient] = []

    def make() -> AsyncClient:
        made.append(AsyncClient(EmbeddedTransport()))
        return made[-1]

    homes = AppHomes(make)
    with closing(Watched()) as known, closing(Watched()) as one, closing(Watched()) as other:
        homes._client_of(known)
        beside = known.beside = threading.Thread(target=homes._client_of, args=(other,))
        homes._client_of(one)
        beside.join()
        assert len(made) == 3
        assert homes._client_of(other) in made
        assert len(made) == 3
