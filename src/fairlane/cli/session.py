"""What all commands of one call share: where the broker is, how to answer, and the way to the door."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # the help needs none of these
    import ssl

    from fairlane.cli.door import Door

DEFAULT_SERVER = "http://127.0.0.1:7420"
STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the broker is: a folder if one is named, otherwise a server."""

    server: str = DEFAULT_SERVER
    api_key: str | None = field(default=None, repr=False)
    data: str | None = None
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    timeout_s: float = 30.0

    @property
    def is_embedded(self) -> bool:
        """Whether the broker lives only as long as this command."""
        return self.data is not None

    @property
    def store(self) -> Path | None:
        """The folder of the store: that of a server is one deeper than that of a program with its own broker."""
        if self.data is None:
            return None
        folder = Path(self.data)
        is_programs = folder.is_dir() and any(folder.iterdir()) and not (folder / STORE).exists()
        return folder if is_programs else folder / STORE

    def tls(self) -> ssl.SSLContext | None:
        """Return how to know the server, and show who we are, if that is not as usual."""
        if self.ca is None and self.certificate is None:
            return None
        from fairlane.wire.tls import client_context

        return client_context(ca=self.ca, certificate=self.certificate, certificate_key=self.certificate_key)


Connect = Callable[[Place], AbstractContextManager["Door"]]


def connect(place: Place) -> AbstractContextManager[Door]:
    """Open the door to the broker of a place."""
    if place.data is not None:
        from fairlane.assembly import open_broker

        return open_broker(place.store)
    from fairlane.client import Client

    return Client(place.server, api_key=place.api_key, tls=place.tls(), timeout=place.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the options before the command say."""

    place: Place
    is_json: bool = False
    connect: Connect = connect

    def door(self) -> AbstractContextManager[Door]:
        """Open the door to the broker."""
        return self.connect(self.place)


pass_session = click.make_pass_decorator(Session)
