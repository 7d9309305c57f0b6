"""The way from a client to a broker in its own process: the one import that goes up, and only when it is asked for.

The client knows the wire and never the broker's inside, so what joins the two is above it, in ``fairlane.embedded``.
"""

from __future__ import annotations

from pathlib import Path

from fairlane.client.transport import Transport


def embedded_transport(path: Path | str | None) -> Transport:
    """Return a transport to a broker in this process, with its data in a folder, or with None in memory."""
    from fairlane.embedded import EmbeddedTransport  # noqa: PLC0415 - see above

    return EmbeddedTransport(path)
