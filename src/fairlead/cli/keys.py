"""The commands ``key …``."""

from __future__ import annotations

import click


@click.group(name="key")
def key_command() -> None:
    """Make, list and revoke API keys of a server."""
