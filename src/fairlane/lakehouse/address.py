"""The address of tables: ``[FORMAT:]ROOT[?NAME=VALUE&…]``, one spelling for every command.

``ROOT`` is a folder or the URI of an object store. ``FORMAT`` is ``delta`` or ``iceberg``; without it tables are plain
Parquet. Options say how a store or a catalog is reached. Credentials are no part of an address: they come from the
environment, as the tools of each provider find them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qsl, urlencode

from fairlane.errors import InvalidArgument

Format = Literal["parquet", "delta", "iceberg"]
FORMATS: tuple[Format, ...] = get_args(Format)

SCHEMES = ("s3", "gs", "az")
"""The object stores that can hold tables."""
_OPTIONS = {
    "s3": ("endpoint", "region", "anonymous"),
    "gs": ("endpoint", "anonymous"),
    "az": ("endpoint", "account", "anonymous"),
    "": (),
}
_ICEBERG_OPTIONS = ("catalog", "namespace")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TablesAddress:
    """Where tables are, and in which format. It can be pickled.

    Attributes:
        format: how the tables are kept.
        root: an absolute folder, or the URI of an object store without a slash at its end.
        options: how the store or the catalog is reached, in order of their names.
    """

    format: Format
    root: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def scheme(self) -> str:
        """The scheme of the object store; empty for a folder."""
        return self.root.partition("://")[0] if "://" in self.root else ""

    @property
    def folder(self) -> Path:
        """The folder; only tables in a folder have one."""
        if self.scheme:
            raise InvalidArgument(f"{self} is not a folder.")
        return Path(self.root)

    def option(self, name: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return dict(self.options).get(name)

    def is_set(self, name: str) -> bool:
        """Return whether an option is ``true``."""
        return self.option(name) == "true"

    def __str__(self) -> str:
        form = "" if self.format == "parquet" else f"{self.format}:"
        return f"{form}{self.root}{f'?{urlencode(self.options)}' if self.options else ''}"


def parse_address(text: str | Path | TablesAddress) -> TablesAddress:
    """Return the address that a text spells. A relative folder is resolved.

    Raises:
        InvalidArgument: the scheme, the format or an option is not known, or there is no bucket.
    """
    if isinstance(text, TablesAddress):
        return text
    if isinstance(text, Path):
        return TablesAddress("parquet", str(text.absolute()))
    form, rest = _format(text)
    is_folder = form != "iceberg" and "://" not in rest  # and a question mark is a part of its name
    location, _, query = (rest, "", "") if is_folder else rest.partition("?")
    root = _root(location, text)
    address = TablesAddress(form, root, tuple(sorted(parse_qsl(query, keep_blank_values=True))))
    _check_options(address)
    return address


def _format(text: str) -> tuple[Format, str]:
    for form in FORMATS:
        if text.startswith(f"{form}:") and not text.startswith(f"{form}://"):
            return form, text.removeprefix(f"{form}:")
    return "parquet", text


def _root(location: str, text: str) -> str:
    found = _SCHEME.fullmatch(location)
    if found is None:
        if not location:
            raise InvalidArgument(f"Invalid address of tables {text!r:.200}: it names no folder.")
        return str(Path(location).absolute())
    scheme, place = found[1].lower(), found[2]
    if scheme not in SCHEMES or not place.startswith("//"):
        known = ", ".join(f"{each}://" for each in SCHEMES)
        hint = " Use s3:// instead." if scheme in ("s3a", "s3n") else ""
        raise InvalidArgument(
            f"Cannot keep tables at {text!r:.200}: unknown scheme {found[1]!r:.50}.{hint} Tables are kept in a folder "
            f"or at {known}, after delta: or iceberg: as Delta or Iceberg tables. Write ./{found[1]}:… for a folder."
        )
    place = place.strip("/")
    if not place:
        raise InvalidArgument(f"Invalid address of tables {text!r:.200}: it names no bucket.")
    return f"{scheme}://{place}"


def _check_options(address: TablesAddress) -> None:
    known = _OPTIONS[address.scheme] + (_ICEBERG_OPTIONS if address.format == "iceberg" else ())
    for name, _ in address.options:
        if name not in known:
            raise InvalidArgument(
                f"Unknown option {name!r:.50} in the address of tables {address}. "
                f"Known options: {', '.join(known) or 'none'}."
            )
    if address.format == "iceberg" and address.scheme and address.option("catalog") is None:
        raise InvalidArgument(
            f"Iceberg tables in an object store need a catalog: {address}?catalog=NAME, "
            "a catalog that PyIceberg is configured with, or the URI of one."
        )
