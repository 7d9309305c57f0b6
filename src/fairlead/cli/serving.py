"""The command ``serve``."""

from __future__ import annotations

import click


@click.command(name="serve")
def serve_command() -> None:
    """Run a server."""
    raise click.UsageError("This build has no server yet.")
