"""The files of the dashboard, and the headers they are served with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

PREFIX: Final = "/dashboard/"
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Only these files run, nothing is loaded from elsewhere, and no other page may frame this one."""
_PAGES: Final = {"index.html": "/", "docs.html": "/docs"}
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file with its content type and an ETag of its content."""

    data: bytes
    kind: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files by the path they are served at. The pages have short paths."""
    found: dict[str, Asset] = {}
    for file in files(__package__).joinpath("static").iterdir():
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            data = file.read_bytes()
            path = _PAGES.get(file.name, PREFIX + file.name)
            found[path] = Asset(data, kind, f'"{sha256(data).hexdigest()[:16]}"')
    return found
