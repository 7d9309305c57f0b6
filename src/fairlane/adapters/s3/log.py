"""One log in a bucket, write by write. Only ``s3_store`` knows when to do which.

Everything that changes something is conditional: a segment is made only if there is none of its number, and the
manifest is changed only if it is as we know it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from fairlane.adapters.s3 import manifest as manifest_format
from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.adapters.s3.catalogue import Catalogue, CatalogueEntry, fences_in
from fairlane.adapters.s3.manifest import Run, StoreManifest
from fairlane.adapters.s3.object_format import ObjectHead, decode_head, encode, pages_in, reach_of
from fairlane.adapters.shared.ownership import Ownership, Tenure
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.errors import StoreCorrupt, StoreFailed, StoreLocked
from fairlane.ports.store import Extent, StoredPage

_READERS = 8
_SEGMENTS = "segments"
_RUNS = "runs"
A = TypeVar("A")
B = TypeVar("B")


def _segment_name(number: int) -> str:
    return f"{_SEGMENTS}/{number:016d}"


def _in_parallel(do: Callable[[A], B], things: Sequence[A]) -> list[B]:
    """Do the same to many things, some of them at the same time: most of it is waiting for the network.

    In plain threads, since a pool refuses to work once the main thread has ended, and a broker may outlive that.
    """
    results: dict[int, B] = {}
    failures: list[Exception] = []
    todo = list(enumerate(things))[::-1]

    def work() -> None:
        while todo and not failures:
            try:
                at, thing = todo.pop()
            except IndexError:
                return  # another was quicker
            try:
                results[at] = do(thing)
            except Exception as error:  # noqa: BLE001 - it is raised below
                failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_READERS, len(things)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[at] for at in range(len(things))]


class S3Log:
    """The log in a bucket, as an owner sees it. Not thread-safe, but ``contents`` and ``add_run`` may run beside all.

    Every method may raise ``StoreFailed``, and those that change something ``StoreFenced``.
    """

    def __init__(self, bucket: S3Bucket, tenure: Tenure) -> None:
        self._bucket = bucket
        self._tenure = tenure
        self._epoch: int | None = None
        self._writers: set[str] = set()
        self._manifest = StoreManifest()
        self._tag = ""

    # --------------------------------------------------------------------------------------------------------- opening

    def take(self, ownership: Ownership) -> Catalogue:
        """Become the owner, or the same anew, and return what there is.

        An opening of ours counts even if we never heard that it got the store.

        Raises:
            StoreLocked: it has an owner that lives, or another was quicker.
            InvalidArgument: the server does not honour conditional writes.
        """
        now_s = self._bucket.check_conditions() if self._epoch is None else 0.0
        manifest, self._tag = self._read_manifest()
        if manifest.writer not in self._writers:
            if self._epoch is not None:
                raise self._tenure.fence(self._taken_over(manifest.owner))
            self._check_free(ownership, manifest, now_s)
        writer = secrets.token_hex(8)
        self._writers.add(writer)
        terms = {
            "epoch": manifest.epoch + 1,
            "owner": ownership.owner,
            "writer": writer,
            "heartbeat_timeout_ms": ownership.heartbeat_timeout_ms,
        }
        self._change_manifest(msgspec.structs.replace(manifest, **terms, heartbeat=0))
        self._epoch = self._manifest.epoch
        catalogue = self._load()
        self._add_fence(catalogue)
        return catalogue

    def _read_manifest(self) -> tuple[StoreManifest, str]:
        found = self._bucket.read(manifest_format.NAME)
        if found is None:
            self._bucket.create(manifest_format.NAME, manifest_format.encode(StoreManifest()))
            found = self._bucket.read(manifest_format.NAME)
        if found is None:
            raise StoreFailed(f"{self._bucket.name} does not keep what is written to it.")
        data, tag = found
        return manifest_format.decode(data), tag

    def _check_free(self, ownership: Ownership, manifest: StoreManifest, now_s: float) -> None:
        if manifest.owner is None:
            return
        after = _segment_name(manifest.next_number - 1).rpartition("/")[2]
        signs = [modified_s for _, modified_s in self._bucket.names(_SEGMENTS, after=after)]
        latest_s = max([*signs, self._bucket.modified_s(manifest_format.NAME)])
        # S3 tells time in whole seconds.
        left_ms = manifest.heartbeat_timeout_ms + 1_000 - round((now_s - latest_s) * 1_000)
        ownership.check_free(owner=manifest.owner, left_ms=left_ms)

    def _taken_over(self, owner: str | None) -> str:
        by = "" if owner is None else f", {owner!r},"
        return f"Another process{by} has taken over {self._bucket.name}."

    def _load(self) -> Catalogue:
        """Read what there is, and delete what is left of merges that were interrupted."""
        catalogue = Catalogue()
        manifest = self._manifest
        for run, head in zip(manifest.runs, _in_parallel(self._run_head, manifest.runs), strict=True):
            catalogue.add(run.name, head, run.head_bytes, None)
        names = [f"{_SEGMENTS}/{name}" for name, _ in self._bucket.names(_SEGMENTS)]
        first = manifest.next_number
        numbers = range(first, first + sum(name >= _segment_name(first) for name in names))
        for number, data in zip(numbers, _in_parallel(self._segment, numbers), strict=True):
            _add_segment(catalogue, number, data)
        self._delete_leftover(names)
        return catalogue

    def _delete_leftover(self, segments: Sequence[str]) -> None:
        manifest = self._manifest
        kept = {_segment_name(number) for number in manifest.fences} | {run.name for run in manifest.runs}
        first = _segment_name(manifest.next_number)
        runs = [f"{_RUNS}/{name}" for name, _ in self._bucket.names(_RUNS)]
        merged = [name for name in segments if name < first]
        self._bucket.delete(name for name in (*merged, *runs) if name not in kept)

    def _run_head(self, run: Run) -> ObjectHead:
        return decode_head(self._ranges(run.name, [0], [run.head_bytes])[0], run.name)[0]

    def _segment(self, number: int) -> bytes:
        return self._whole(_segment_name(number))

    def _add_fence(self, catalogue: Catalogue) -> None:
        """Write a fence in the place of the next segment. What an earlier owner wrote there meanwhile is kept."""
        while True:
            number = catalogue.next_number
            head = self._head(catalogue.extent, number, is_fence=True)
            data, _, _ = encode(head, [], {})
            is_made = self._create(number, data)
            _add_segment(catalogue, number, data if is_made else self._segment(number))
            if is_made:
                return

    # --------------------------------------------------------------------------------------------------------- writing

    def add_segment(self, catalogue: Catalogue, change: Unsynced) -> None:
        """Write a change as the next segment, durable on return."""
        number = catalogue.next_number
        head = self._head(change.after, number, dropped=sorted(change.dropped))
        data, _, _ = encode(head, change.pages, change.bodies)
        if not self._create(number, data):
            raise StoreFailed(f"The segment {number} is there already; something else wrote to the store.")
        _add_segment(catalogue, number, data)

    def _head(self, extent: Extent, number: int, *, dropped: Sequence[int] = (), is_fence: bool = False) -> ObjectHead:
        return ObjectHead(
            first=number,
            last=number,
            epoch=self._epoch or 0,
            writer=self._manifest.writer,
            is_fence=is_fence,
            reach=reach_of(extent),
            dropped=list(dropped),
        )

    def _create(self, number: int, data: bytes) -> bool:
        """Make a segment; return False if an earlier owner has made one of its number."""
        name = _segment_name(number)
        if self._bucket.create(name, data) is not None:
            return True
        there = self._segment(number)
        if there == data:
            return True  # the answer to our first attempt was lost
        head, _ = decode_head(there, name)
        if head.epoch > (self._epoch or 0):
            raise self._tenure.fence(self._taken_over(None))
        return False

    def renew(self) -> None:
        """Show a sign of life."""
        self._change_manifest(msgspec.structs.replace(self._manifest, heartbeat=self._manifest.heartbeat + 1))

    def release(self) -> None:
        """Let go of the log."""
        self._change_manifest(msgspec.structs.replace(self._manifest, owner=None))

    def _change_manifest(self, manifest: StoreManifest) -> None:
        tag = self._bucket.replace(manifest_format.NAME, manifest_format.encode(manifest), tag=self._tag)
        self._tag = tag if tag is not None else self._tag_if_ours(manifest)
        self._manifest = manifest

    def _tag_if_ours(self, manifest: StoreManifest) -> str:
        """Return the tag of the manifest if it is the one we wrote: the answer to our first attempt may be lost."""
        there, tag = self._read_manifest()
        if there == manifest:
            return tag
        if there.writer not in self._writers:
            if self._epoch is None:
                raise StoreLocked(f"Another process took {self._bucket.name} over at the same time.")
            raise self._tenure.fence(self._taken_over(there.owner))
        raise StoreFailed(f"The manifest of {self._bucket.name} is not as we left it.")

    # --------------------------------------------------------------------------------------------------------- reading

    def pages(self, entry: CatalogueEntry) -> list[StoredPage]:
        """Return the pages of an object."""
        if entry.pages is not None:
            return entry.pages
        (data,) = self._ranges(entry.name, [0], [entry.head_bytes + entry.page_bytes])
        head, start = decode_head(data, entry.name)
        return list(pages_in(head, data, start))

    def bodies(self, name: str, parts: Sequence[tuple[int, int, int]]) -> dict[int, bytes]:
        """Return bodies of an object by number; of each its number, where it begins, and its bytes are given."""
        bodies = {number: b"" for number, _, size in parts if not size}
        parts = [part for part in parts if part[2]]
        if parts:
            numbers, offsets, sizes = zip(*parts, strict=True)
            bodies.update(zip(numbers, self._ranges(name, offsets, sizes), strict=True))
        return bodies

    def _ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        found = self._bucket.read_ranges(name, starts, lengths)
        if found is None:
            raise StoreCorrupt(f"The object {name} is missing from {self._bucket.name}.")
        return found

    def _whole(self, name: str) -> bytes:
        found = self._bucket.read(name)
        if found is None:
            raise StoreCorrupt(f"The object {name} is missing from {self._bucket.name}.")
        return found[0]

    # --------------------------------------------------------------------------------------------------------- merging

    @property
    def signature(self) -> tuple[int, str]:
        """The epoch and the writer that new objects name."""
        return self._epoch or 0, self._manifest.writer

    def contents(self, entries: Sequence[CatalogueEntry]) -> list[bytes]:
        """Return objects as they are."""
        return _in_parallel(self._whole, [entry.name for entry in entries])

    def add_run(self, last: int, data: bytes) -> str:
        """Write a run, which counts for nothing yet, and return its name."""
        name = f"{_RUNS}/{last:016d}-{secrets.token_hex(8)}"
        self._bucket.create(name, data)
        return name

    def adopt(
        self, catalogue: Catalogue, entries: Sequence[CatalogueEntry], run: tuple[str, ObjectHead, int] | None
    ) -> list[str]:
        """Put a run in place of what it was merged from, and return the names of what may be deleted then."""
        gone = {entry.name for entry in entries}
        runs = [each for each in self._manifest.runs if each.name not in gone]
        if run is not None:
            name, head, head_bytes = run
            runs.append(Run(name=name, first=head.first, last=head.last, head_bytes=head_bytes))
        new_fences = fences_in(entries)
        fences = (*self._manifest.fences, *new_fences)
        in_order = tuple(sorted(runs, key=lambda each: each.first))
        self._change_manifest(msgspec.structs.replace(self._manifest, runs=in_order, fences=fences))
        catalogue.replace(entries, run)
        return sorted(gone - set(map(_segment_name, new_fences)))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects that no manifest names any more."""
        self._bucket.delete(names)


def _add_segment(catalogue: Catalogue, number: int, data: bytes) -> None:
    name = _segment_name(number)
    head, start = decode_head(data, name)
    catalogue.add(name, head, start, list(pages_in(head, data, start)))
