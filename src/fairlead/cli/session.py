"""What all commands of one call share: where the broker is, how to answer, and the way to the door."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # the help needs no model
    from fairlead.cli.door import Door

DEFAULT_SERVER = "http://127.0.0.1:7420"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the broker is: a folder if one is named, otherwise a server."""

    server: str = DEFAULT_SERVER
    api_key: str | None = field(default=None, repr=False)
    data: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the broker lives only as long as this command."""
        return self.data is not None


Connect = Callable[[Place], AbstractContextManager["Door"]]


def connect(place: Place) -> AbstractContextManager[Door]:
    """Open the door to the broker of a place."""
    if place.data is not None:
        from fairlead.assembly import open_broker  # noqa: PLC0415 - only who works on a folder needs a broker

        return open_broker(place.data)
    from fairlead.client import Client  # noqa: PLC0415 - only who talks to a server needs a client

    return Client(place.server, api_key=place.api_key)


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
