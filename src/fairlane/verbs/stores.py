"""The verb with which backups read a store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from fairlane.model.bounds import Batch
from fairlane.verbs.verb import Request, Shape, Verb


class StorePage(Shape, frozen=True, kw_only=True):
    """The records of one commit, as the store keeps them."""

    sequence: int
    next_sequence: int
    page: bytes


class StoreBody(Shape, frozen=True, kw_only=True):
    """A chunk of payloads, a workflow state, a result or a piece of an upload, under its number in the store."""

    number: int
    data: bytes


class BodyNumber(Shape, frozen=True, kw_only=True):
    """The number of a body to read."""

    number: int


class StoreSlice(Shape, frozen=True, kw_only=True):
    """A part of a store, all of it as it was at one instant.

    Attributes:
        pages: consecutive pages, from the one that holds the sequence after the given one.
        bodies: those of the bodies that exist: the requested ones, or those that the pages added.
        base: where recovery begins.
        next_sequence: where the next commit begins. The slice reaches the end of the store if its last page ends here.
        counts_from: what the sequences begin after.
        journal_id: which journal it is.
        at_ms: the instant.
    """

    pages: list[StorePage]
    bodies: list[StoreBody]
    base: int
    next_sequence: int
    counts_from: int = 0
    journal_id: str
    at_ms: int


@Verb(
    name="read_store",
    path="store/read",
    right="admin",
    about="group",
    repeat="always",
    is_look=True,
    is_secret=True,
    command="backup",
)
class ReadStore(Request[StoreSlice], frozen=True, kw_only=True):
    """Return a part of the store as it is, about a megabyte, for a backup.

    Attributes:
        after: the sequence after which to read pages.
        bodies: return these bodies, as many as fit and one at least, and no pages.
        queue: in a cluster, a queue of the group whose store to read.
    """

    after: int = 0
    bodies: Batch[BodyNumber] = field(default_factory=list)
    queue: str | None = None


def read_request(after: int, bodies: Sequence[int], queue: str | None) -> ReadStore:
    """Return a request with the numbers of bodies."""
    return ReadStore(after=after, bodies=[BodyNumber(number=number) for number in bodies], queue=queue)
