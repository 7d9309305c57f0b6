"""Verbs about API keys: create, list and revoke them."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.model.bounds import Grants, Patterns
from fairlane.verbs.verb import Done, Request, Right, Shape, Verb

EVERY: Final = "*"
"""The pattern of every queue."""


def fits(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern: a name, a prefix followed by a star, or a star for all names."""
    return name.startswith(pattern[:-1]) if pattern.endswith(EVERY) else name == pattern


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A right on queues. A pattern is a name, a prefix followed by a star, or a star for all names.

    Attributes:
        right: ``produce``; ``consume``; ``observe`` for metrics and read-only views, which ``consume`` includes; or
            ``admin``, which includes all.
        queues: the pattern of the queue names.
        keys: for ``produce``, patterns of which one must match the fairness key that a message gets; any key by
            default. Of a path only the first name is compared, because it is the tenant. A grant with keys can't set
            the weight of its messages, nor under strict priority their priority.
        throttles: for ``produce``, patterns of the throttles that a message may name; by default any, or none if the
            grant has keys.
        sinks: for ``produce``, patterns of the sinks that the caller may use; by default any, or none if the grant has
            keys.
    """

    right: Right
    queues: str = EVERY
    keys: Patterns | None = None
    throttles: Patterns | None = None
    sinks: Patterns | None = None


class CreatedKey(Shape, frozen=True, kw_only=True):
    """A new API key. It is shown only once."""

    id: str
    key: str


@Verb(name="create_key", path="keys/create", right="admin", about="every", is_secret=True, command="key create")
class CreateKey(Request[CreatedKey], frozen=True, kw_only=True):
    """Create an API key.

    Attributes:
        name: who uses the key, for operators and the journal. Keys of one name are one caller: they share open uploads
            and producer numbers.
        expires_ms: the instant at which the key expires; never by default.
    """

    name: str
    grants: Grants[Grant]
    expires_ms: int | None = None


class KeyShown(Shape, frozen=True, kw_only=True):
    """An API key without its secret."""

    id: str
    name: str
    grants: tuple[Grant, ...]
    created_ms: int
    expires_ms: int | None = None


class KeyList(Shape, frozen=True, kw_only=True):
    """All API keys, by id."""

    keys: list[KeyShown]


@Verb(name="list_keys", path="keys/list", right="admin", about="every", repeat="always", command="key list")
class ListKeys(Request[KeyList], frozen=True, kw_only=True):
    """Return all API keys, without their secrets."""


@Verb(name="revoke_key", path="keys/revoke", right="admin", about="every", command="key revoke")
class RevokeKey(Request[Done], frozen=True, kw_only=True):
    """Revoke an API key."""

    id: str
