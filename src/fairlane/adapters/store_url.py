"""URLs of stores: their options, and their form without secrets; and folders with the kind of store in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from fairlane.errors import InvalidArgument
from fairlane.model.names import queue_name_fault

POSTGRES: Final = frozenset(("postgresql", "postgres"))
S3: Final = "s3"
AZURE: Final = "az"
OBJECTS: Final = frozenset((S3, AZURE))
"""The schemes of object stores."""
NAMESPACE: Final = "default"
FOLDER_KINDS: Final = ("log", "rocksdb")
"""What may be written before a folder and a colon, to name the kind of the store in it."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OWNERSHIP_OPTIONS: Final = frozenset(("owner", "heartbeat_timeout_ms", "force"))
_POSTGRES_OPTIONS: Final = _OWNERSHIP_OPTIONS | {"namespace"}
_OBJECT_OPTIONS: Final = {
    S3: _OWNERSHIP_OPTIONS | {"endpoint", "region", "anonymous", "window_ms"},
    AZURE: _OWNERSHIP_OPTIONS | {"endpoint", "account", "window_ms"},
}
_OBJECT_FORMS: Final = {
    S3: (
        "s3://BUCKET/PREFIX, without credentials. "
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use the machine's role."
    ),
    AZURE: (
        "az://CONTAINER/PREFIX, without credentials. Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, "
        "or use the machine's identity."
    ),
}
_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SECRETS: Final = frozenset(("password", "sslpassword"))


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The parsed URL of a store.

    Attributes:
        scheme: ``postgresql``, ``s3`` or ``az``.
        address: for PostgreSQL the URL for its client, otherwise the bucket or container, and the prefix.
        options: the options that are meant for Fairlane.
    """

    scheme: str
    address: str
    options: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        """Return the value of an integer option. Raises InvalidArgument if the value is not an integer."""
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            raise InvalidArgument(f"Option {name} in the store URL must be an integer, got {text!r}.")
        return int(text)

    def truth(self, name: str) -> bool:
        """Return the value of a boolean option; False if it is not given.

        Raises:
            InvalidArgument: the value is neither true nor false.
        """
        text = self.options.get(name, "false").lower()
        if text not in _TRUTHS:
            raise InvalidArgument(f"Option {name} in the store URL must be true or false, got {text!r}.")
        return _TRUTHS[text]


def is_url(text: str) -> bool:
    """Return whether a string is the URL of a store, rather than a folder."""
    return _SCHEME.match(text) is not None


def split_folder(text: str) -> tuple[str, str]:
    """Return the kind of store that a folder is given with, as in ``log:PATH``, and the folder; no kind if none is."""
    kind, colon, folder = text.partition(":")
    return (kind, folder) if colon and folder and kind in FOLDER_KINDS else ("", text)


def is_place(text: str) -> bool:
    """Return whether a string names a kind of store: a URL, or a folder with its kind."""
    return is_url(text) or bool(split_folder(text)[0])


def parse_store_url(url: str) -> StoreUrl:
    """Parse the URL of a store. Raises InvalidArgument if the scheme or an option is unknown."""
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme in POSTGRES:
        ours = {name: value for name, value in options.items() if name in _POSTGRES_OPTIONS}
        theirs = {name: value for name, value in options.items() if name not in _POSTGRES_OPTIONS}
        # By hand, since urlunsplit omits the slashes if there is no host.
        address = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(theirs)}" if theirs else "")
        return StoreUrl("postgresql", address, ours)
    if parts.scheme in OBJECTS:
        return _object_url(parts, options)
    raise InvalidArgument(f"Unknown store URL scheme {parts.scheme}://. Use postgresql://, s3:// or az://.")


def _object_url(parts: SplitResult, options: Mapping[str, str]) -> StoreUrl:
    known = _OBJECT_OPTIONS[parts.scheme]
    if (unknown := next((name for name in options if name not in known), None)) is not None:
        listed = ", ".join(sorted(known))
        raise InvalidArgument(f"A store at {parts.scheme}:// has no option {unknown!r}. Its options are {listed}.")
    if not parts.hostname or "@" in parts.netloc:
        raise InvalidArgument(f"The URL of a store at {parts.scheme}:// must be {_OBJECT_FORMS[parts.scheme]}")
    return StoreUrl(parts.scheme, f"{parts.netloc}{parts.path}", options)


def group_url(url: str, group: str, *, owner: str, heartbeat_timeout_ms: int) -> str:
    """Return the URL of the store of a group, given the URL of its cluster.

    Args:
        url: the URL of the cluster's board.
        group: the name of the group; the rules for queue names apply.
        owner: the name of the owner.
        heartbeat_timeout_ms: how long after its last heartbeat an owner is not taken over from.

    Raises:
        InvalidArgument: the URL or the name of the group is invalid.
    """
    if (fault := queue_name_fault(group)) is not None:
        raise InvalidArgument(fault)
    parse_store_url(url)
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options.pop("force", None)
    options |= {"owner": owner, "heartbeat_timeout_ms": str(heartbeat_timeout_ms)}
    path = parts.path
    if parts.scheme in OBJECTS:
        path = f"{path.rstrip('/')}/g/{group}"
    else:
        options["namespace"] = f"{options.get('namespace', NAMESPACE)}.g.{group}"
    return f"{parts.scheme}://{parts.netloc}{path}?{urlencode(options)}"


def shown_url(url: str) -> str:
    """Return the URL of a store without passwords."""
    parts = _split(url)
    user, at, host = parts.netloc.rpartition("@")
    options = [(name, "***" if name in _SECRETS else value) for name, value in parse_qsl(parts.query)]
    query = f"?{urlencode(options, safe='/:*')}" if options else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{query}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text may quote the password
        raise InvalidArgument(
            "Invalid store URL: host or port can't be read. Percent-encode special characters in user and password."
        ) from None
