"""The manifest: who owns a store in S3, and which runs it has. It is only ever changed by compare-and-set."""

from __future__ import annotations

import msgspec

from fairlane.errors import StoreCorrupt

NAME = "manifest.json"
FORMAT = 1


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as the manifest names it.

    Attributes:
        name: of its object.
        first: the number of the first segment that it stands for.
        last: the number of the last.
        head_bytes: how many bytes come before its pages.
    """

    name: str
    first: int
    last: int
    head_bytes: int


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns a store, and what it is made of besides the segments after its last run.

    Attributes:
        epoch: grows with each owner.
        owner: who owns it; None for nobody.
        writer: the opening by which it owns it, under a name that was never used before.
        heartbeat_timeout_ms: for how long the owner is not taken over from without a sign of life.
        heartbeat: grows with each sign of life that is not a commit.
        runs: in order.
        fences: the numbers of the segments that mark where owners have begun. They are never deleted: an earlier owner
            that wakes up goes on at just that number, where it must find that it is too late.
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
        """The number of the first segment that no run stands for."""
        return self.runs[-1].last + 1 if self.runs else 1


def encode(manifest: StoreManifest) -> bytes:
    """Return a manifest as text, for people to look into."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode(data: bytes) -> StoreManifest:
    """Read a manifest.

    Raises:
        StoreCorrupt: it can't be read.
    """
    try:
        manifest = msgspec.json.decode(data, type=StoreManifest)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"The manifest can't be read: {error}.") from error
    if manifest.format != FORMAT:
        raise StoreCorrupt(f"The store has format {manifest.format}; this version of Fairlane knows {FORMAT}.")
    return manifest
