"""What the options before the command set: where the broker is, how to connect to it, and the output format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from fairlane.cli.formatting import as_json
from fairlane.cli.output import Table, show
from fairlane.data_folder import STORE_FOLDER, is_marked

if TYPE_CHECKING:  # the help imports none of these
    import ssl

    from fairlane.verbs.methods.complete import AllVerbs

Broker: TypeAlias = "AllVerbs[Any]"
"""A broker that the commands call: embedded, or a client of a server."""

DEFAULT_SERVER = "http://127.0.0.1:7420"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the broker is: the folder ``data`` if it is set, otherwise a server."""

    server: str = DEFAULT_SERVER
    api_key: str | None = field(default=None, repr=False)
    data: str | None = None
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    timeout_s: float = 30.0

    @property
    def is_embedded(self) -> bool:
        """Whether the command opens the broker itself."""
        return self.data is not None

    @property
    def store(self) -> Path | None:
        """The folder of the store.

        A server keeps its store one folder deeper than a program that embeds a broker. Both kinds of folder work.
        """
        if self.data is None:
            return None
        folder = Path(self.data)
        is_of_a_server = is_marked(folder) or (folder / STORE_FOLDER).exists()
        is_of_a_program = not is_of_a_server and folder.is_dir() and any(folder.iterdir())
        return folder if is_of_a_program else folder / STORE_FOLDER

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for the given certificates; None for the system's defaults."""
        if self.ca is None and self.certificate is None:
            return None
        from fairlane.wire.tls import client_context

        return client_context(ca=self.ca, certificate=self.certificate, certificate_key=self.certificate_key)


Connect = Callable[[Endpoint], AbstractContextManager["Broker"]]


def connect(endpoint: Endpoint) -> AbstractContextManager[Broker]:
    """Open the broker in a folder, or connect to a server."""
    if endpoint.data is not None:
        from fairlane.assembly import open_broker

        return open_broker(endpoint.store)
    from fairlane.client import Client

    return Client(endpoint.server, api_key=endpoint.api_key, tls=endpoint.tls(), timeout=endpoint.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The options before the command, shared by all commands."""

    endpoint: Endpoint
    is_json: bool = False
    connect: Connect = connect

    def broker(self) -> AbstractContextManager[Broker]:
        """Return the broker as a context manager."""
        return self.connect(self.endpoint)

    def answer(self, thing: object, readable: Iterable[Table] | str) -> None:
        """Print an answer: the thing itself as JSON, or the text or tables that people read."""
        if self.is_json:
            click.echo(as_json(thing))
        elif isinstance(readable, str):
            click.echo(readable)
        else:
            show(readable)


pass_session = click.make_pass_decorator(Session)
