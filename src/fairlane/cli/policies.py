"""Queue policies as operators write them: ``--set name=value`` options and files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import click
import msgspec

from fairlane.model.durations import milliseconds
from fairlane.model.policy import QueuePolicy
from fairlane.model.spelling import did_you_mean

_TYPES = {field.name: field.type for field in msgspec.structs.fields(QueuePolicy)}
_SCRIPTS = ("on_enqueue", "on_failure")


def policy_fields(path: Path | None, pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the fields from a file and from ``--set``, which overrides the file.

    Raises:
        click.UsageError: the file or a value is not valid.
    """
    fields = {} if path is None else _from_file(path)
    for setting, text in pairs:
        name, dot, key = setting.partition(".")
        try:
            if dot:
                table = fields.get(name, {})
                fields[name] = (table if isinstance(table, dict) else {}) | {key: int(text)}
            else:
                name = _field(name)
                fields[name] = _value(name, text)
        except (ValueError, OSError) as error:
            raise click.UsageError(f"Invalid --set {setting}: {error}") from error
    return fields


def _field(name: str) -> str:
    """Return the name of a field; the unit ``_ms`` may be left out."""
    name = name.replace("-", "_")
    if name in _TYPES:
        return name
    if name + "_ms" in _TYPES:
        return name + "_ms"
    raise ValueError(
        f"Unknown policy field {name!r}.{did_you_mean(name, _TYPES)} Valid fields are {', '.join(_TYPES)}."
    )


def _value(name: str, text: str) -> object:
    kind = _TYPES[name]
    if text == "none":
        return None
    if name in _SCRIPTS:
        return Path(text[1:]).read_text() if text.startswith("@") else text
    if name.endswith("_ms") and not text.isdigit():
        return milliseconds(text)
    if text.startswith(("{", "[")):
        return json.loads(text)
    if "tuple" in str(kind) and ("," in text or str not in get_args(kind)):
        return text.split(",")
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}.") from error


def _from_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text()
        fields = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"Cannot read --policy {path}: {error}") from error
    if not isinstance(fields, dict):
        raise click.UsageError(f"Invalid --policy {path}: expected a table of fields.")
    for name in _SCRIPTS:
        script = fields.get(name)
        if isinstance(script, str) and script.startswith("@"):
            fields[name] = (path.parent / script[1:]).read_text()
    return fields
