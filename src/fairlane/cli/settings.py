"""The settings a server starts with, from a file, the environment and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # the other commands of config need no server
    from fairlane.server.settings import ServerSettings

SETTINGS_FILE = click.option(
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="FAIRLANE_CONFIG",
    show_envvar=True,
    help="A TOML file with settings. The environment and flags win over it.",
)


def load_settings(path: Path | None, flags: Mapping[str, object]) -> ServerSettings:
    """Return the settings that a file, the environment and flags say.

    Raises:
        InvalidArgument: one of them makes no sense.
    """
    from fairlane.server.settings import load

    return load(None if path is None else path.read_text(), os.environ, flags)


def facts_of(settings: ServerSettings) -> dict[str, object]:
    """Return all settings by name, without what is nobody's business."""
    from fairlane.assembly import shown_url
    from fairlane.server.settings import NAMES

    places = {name: settings if place is None else getattr(settings, place) for name, (place, _) in NAMES.items()}
    facts = {name: getattr(place, name) for name, place in places.items()}
    return facts if settings.store is None else facts | {"store": shown_url(settings.store)}
