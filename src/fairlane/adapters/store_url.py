"""Stores named by a URL: what it says to the adapter, and what of it may be shown."""

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
NAMESPACE: Final = "default"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CLAIM_OPTIONS: Final = frozenset(("owner", "heartbeat_timeout_ms", "force"))
_POSTGRES_OPTIONS: Final = _CLAIM_OPTIONS | {"namespace"}
_S3_OPTIONS: Final = _CLAIM_OPTIONS | {"endpoint", "region", "anonymous", "window_ms"}
_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SECRETS: Final = frozenset(("password", "sslpassword"))


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store, as a URL names it.

    Attributes:
        scheme: ``postgresql`` or ``s3``.
        address: for PostgreSQL the URL that its client understands, for S3 the bucket and what is below it.
        options: what is meant for us.
    """

    scheme: str
    address: str
    options: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        """Return an option that is a whole number.

        Raises:
            InvalidArgument: it is none.
        """
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            raise InvalidArgument(f"{name} in the store's URL is a whole number, not {text!r}.")
        return int(text)

    def truth(self, name: str) -> bool:
        """Return an option that is true or false; false where it is not given.

        Raises:
            InvalidArgument: it is neither.
        """
        text = self.options.get(name, "false").lower()
        if text not in _TRUTHS:
            raise InvalidArgument(f"{name} in the store's URL is true or false, not {text!r}.")
        return _TRUTHS[text]


def is_url(text: str) -> bool:
    """Tell whether a text names a store by URL, rather than a folder."""
    return _SCHEME.match(text) is not None


def parse_store_url(url: str) -> StoreUrl:
    """Read the URL of a store.

    Raises:
        InvalidArgument: there are no such stores, or it has an option that they don't have.
    """
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme in POSTGRES:
        ours = {name: value for name, value in options.items() if name in _POSTGRES_OPTIONS}
        theirs = {name: value for name, value in options.items() if name not in _POSTGRES_OPTIONS}
        # By hand, since urlunsplit leaves the slashes out where no host is named.
        address = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(theirs)}" if theirs else "")
        return StoreUrl("postgresql", address, ours)
    if parts.scheme == S3:
        if (unknown := next((name for name in options if name not in _S3_OPTIONS), None)) is not None:
            raise InvalidArgument(f"A store in S3 has no option {unknown!r}; it has {', '.join(sorted(_S3_OPTIONS))}.")
        if not parts.hostname or "@" in parts.netloc:
            raise InvalidArgument("A store in S3 is named by s3://BUCKET/PREFIX; credentials come from elsewhere.")
        return StoreUrl(S3, f"{parts.netloc}{parts.path}", options)
    raise InvalidArgument(f"There are stores at postgresql:// and s3://, not at {parts.scheme}://.")


def group_url(url: str, group: str, *, owner: str, heartbeat_timeout_ms: int) -> str:
    """Return the URL of the store of a group of queues, whose cluster is at a URL.

    Args:
        url: where the cluster has its board.
        group: the name of the group, such as a queue may have.
        owner: the name under which the store is claimed.
        heartbeat_timeout_ms: for how long an owner that shows no sign of life is not taken over from.

    Raises:
        InvalidArgument: the cluster can't be there, or the group has no such name.
    """
    if (fault := queue_name_fault(group)) is not None:
        raise InvalidArgument(fault)
    parse_store_url(url)
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options.pop("force", None)
    options |= {"owner": owner, "heartbeat_timeout_ms": str(heartbeat_timeout_ms)}
    path = parts.path
    if parts.scheme == S3:
        path = f"{path.rstrip('/')}/g/{group}"
    else:
        options["namespace"] = f"{options.get('namespace', NAMESPACE)}.g.{group}"
    return f"{parts.scheme}://{parts.netloc}{path}?{urlencode(options)}"


def shown_url(url: str) -> str:
    """Return the URL of a store without what is nobody's business."""
    parts = _split(url)
    user, at, host = parts.netloc.rpartition("@")
    options = [(name, "***" if name in _SECRETS else value) for name, value in parse_qsl(parts.query)]
    query = f"?{urlencode(options, safe='/:*')}" if options else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{query}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"The URL of the store makes no sense: {error}.") from error
