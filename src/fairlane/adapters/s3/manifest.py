"""The manifest of an S3 store: its owner and its runs. It is changed only by compare-and-set."""

from __future__ import annotations

import msgspec

from fairlane.errors import StoreCorrupt

NAME = "manifest.json"
FORMAT = 1


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as listed in the manifest.

    Attributes:
        name: the name of its object.
        first: the number of the first segment that it replaces.
        last: the number of the last segment that it replaces.
        head_bytes: the number of bytes before its pages.
    """

    name: str
    first: int
    last: int
    head_bytes: int


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a store, and its runs. The segments after the last run belong to the store too.

    Attributes:
        epoch: grows with each opening.
        owner: the name of the owner; None if there is none.
        writer: a random name of the opening under which the store is owned.
        heartbeat_timeout_ms: how long after its last heartbeat the owner is not taken over from.
        heartbeat: grows with each heartbeat that is not a commit.
        runs: the runs in order.
        fences: the numbers of the segments at which owners have begun. They are never deleted: an earlier owner that
            wakes up continues at exactly that number, and must find it taken.
    """

    format: int = FORMAT
    epoch: int = 0
    owner: str | None = None
    writer: str = ""
    heartbeat_timeout_ms: int = 0
    heartbeat: int = 0
    runs: tuple[Run, ...] = ()
    fences: tuple[int, ...] = ()

    @property
    def next_number(self) -> int:
        """The number of the first segment after all runs."""
        return self.runs[-1].last + 1 if self.runs else 1


def encode(manifest: StoreManifest) -> bytes:
    """Return a manifest as indented JSON, readable for operators."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode(data: bytes) -> StoreManifest:
    """Decode a manifest. Raises StoreCorrupt if it cannot be decoded."""
    try:
        manifest = msgspec.json.decode(data, type=StoreManifest)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"The manifest cannot be decoded: {error}.") from error
    if manifest.format != FORMAT:
        raise StoreCorrupt(f"The store has format {manifest.format}; this version of Fairlane supports {FORMAT}.")
    return manifest
