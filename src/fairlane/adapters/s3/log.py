"""One log in a bucket, request by request. ``store`` decides when to do which.

Theory of operation
-------------------
Every write is conditional: a segment is created only if there is none of its number, and the manifest is replaced only
if its tag is the one we know. Segments are numbered without gaps, so two processes that both believe to own the log
compete for the same number, and one of them loses.

A takeover is three steps: compare-and-set the manifest to a new epoch; read all objects; create a *fence* under the
next free number. Between the first and the last step the old owner may still add segments, which are then read and
kept. After the fence it can't: the next number it would use is taken by an object of a higher epoch, and it learns that
it is fenced, however late it wakes up. That is why fences are never deleted: a number that is free again could be used
again.

An answer can be lost after the request was carried out, and the client repeats the request. Every conditional write
therefore handles "the condition failed" by looking whether the object there is its own.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from fairlane.adapters.s3 import manifest as manifest_format
from fairlane.adapters.s3.bucket import ObjectBucket
from fairlane.adapters.s3.catalogue import (
    APART,
    Catalogue,
    CatalogueEntry,
    LocatedBodies,
    apart_name,
    fences_in,
)
from fairlane.adapters.s3.manifest import Run, StoreManifest
from fairlane.adapters.s3.object_format import ObjectHead, decode_head, encode, pages_in, reach_of
from fairlane.adapters.shared.ownership import Ownership, Tenure
from fairlane.adapters.shared.unsynced import Unsynced
from fairlane.errors import StoreCorrupt, StoreFailed, StoreLocked
from fairlane.ports.store import Extent, StoredPage

_READERS = 8
APART_BYTES_MIN = 64 * 1024
"""A body of this size or larger is an object of its own."""
_SEGMENTS = "segments"
_RUNS = "runs"
A = TypeVar("A")
B = TypeVar("B")


def _segment_name(number: int) -> str:
    return f"{_SEGMENTS}/{number:016d}"


def _in_parallel(do: Callable[[A], B], things: Sequence[A]) -> list[B]:
    """Call a function for many things in parallel, since most of the time is spent waiting for the network.

    In plain threads: a thread pool refuses to work once the main thread has ended, and a broker may outlive it.
    """
    results: dict[int, B] = {}
    failures: list[Exception] = []
    todo = list(enumerate(things))[::-1]

    def work() -> None:
        while todo and not failures:
            try:
                at, thing = todo.pop()
            except IndexError:
                return  # another thread took the last one
            try:
                results[at] = do(thing)
            except Exception as error:  # noqa: BLE001 - it is raised in the calling thread below
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
    """The log in a bucket, as its owner sees it. Not thread-safe, except that ``read``, ``contents`` and ``add_run``
    may run beside all other methods.

    Every method may raise ``StoreFailed``, and those that write ``StoreFenced``.
    """

    def __init__(self, bucket: ObjectBucket, tenure: Tenure) -> None:
        self._bucket = bucket
        self._tenure = tenure
        self._epoch: int | None = None
        self._writers: set[str] = set()
        self._manifest = StoreManifest()
        self._tag = ""

    # --------------------------------------------------------------------------------------------------------- opening

    def take(self, ownership: Ownership) -> Catalogue:
        """Become the owner, or renew an own ownership, and return the catalogue.

        An opening of ours counts as ours even if its answer never arrived, so this process is not locked out by itself.
        Raises StoreLocked if another owner is alive, or another process was faster. Raises InvalidArgument if the
        server does not honour conditional writes.
        """
        now_s = self._bucket.check_conditions() if self._epoch is None else 0.0
        manifest, self._tag = self._read_manifest()
        if manifest.writer not in self._writers:
            if self._epoch is not None:
                raise self._tenure.fence(self._taken_over(manifest.owner))
            self._check_free(ownership, manifest, now_s)
        writer = ownership.new_session()
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
        # Listed before the fence: a later owner writes after its own fence, which comes after ours, so nothing of its
        # is in the list. What is not needed then was left behind by a sync that failed or a crash.
        apart = [f"{APART}/{name}" for name, _ in self._bucket.names(APART)]
        self._add_fence(catalogue)
        needed = catalogue.apart_names()
        self._bucket.delete(name for name in apart if name not in needed)
        catalogue.take_unneeded()  # they were in the list, if they were not deleted before
        return catalogue

    def _read_manifest(self) -> tuple[StoreManifest, str]:
        found = self._bucket.read(manifest_format.NAME)
        if found is None:
            self._bucket.create(manifest_format.NAME, manifest_format.encode(StoreManifest()))
            found = self._bucket.read(manifest_format.NAME)
        if found is None:
            raise StoreFailed(f"{self._bucket.name} accepted an object but does not return it.")
        data, tag = found
        return manifest_format.decode(data), tag

    def _check_free(self, ownership: Ownership, manifest: StoreManifest, now_s: float) -> None:
        if manifest.owner is None:
            return
        after = _segment_name(manifest.next_number - 1).rpartition("/")[2]
        signs = [modified_s for _, modified_s in self._bucket.names(_SEGMENTS, after=after)]
        latest_s = max([*signs, self._bucket.modified_s(manifest_format.NAME)])
        # S3 reports times in whole seconds, so an owner gets one second more.
        left_ms = manifest.heartbeat_timeout_ms + 1_000 - round((now_s - latest_s) * 1_000)
        ownership.check_free(owner=manifest.owner, session=manifest.writer, left_ms=left_ms)

    def _taken_over(self, owner: str | None) -> str:
        by = "" if owner is None else f", {owner!r},"
        return f"Another process{by} has taken over {self._bucket.name}."

    def _load(self) -> Catalogue:
        """Read all objects, and delete what interrupted merges have left over."""
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
        """Create a fence under the next free number. Segments that the earlier owner adds meanwhile are kept."""
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
        """Write a change as the next segment. It is durable on return."""
        number = catalogue.next_number
        large = {at: body for at, body in change.bodies.items() if len(body) >= APART_BYTES_MIN}
        inner = {at: body for at, body in change.bodies.items() if at not in large} if large else change.bodies
        head = self._head(change.after, number, dropped=sorted(change.dropped), apart=self._add_apart(large))
        data, _, _ = encode(head, change.pages, inner)
        if not self._create(number, data):
            raise StoreFailed(f"Segment {number} exists already; another process wrote to the store.")
        _add_segment(catalogue, number, data)

    def _add_apart(self, bodies: Mapping[int, bytes]) -> list[tuple[int, int, str]]:
        """Write large bodies as objects of their own, which do not count before a segment names them."""
        if not bodies:
            return []
        tag = secrets.token_hex(4)
        _in_parallel(lambda pair: self._bucket.create(apart_name(pair[0], tag), pair[1]), list(bodies.items()))
        return [(number, len(body), tag) for number, body in bodies.items()]

    def _head(
        self,
        extent: Extent,
        number: int,
        *,
        dropped: Sequence[int] = (),
        apart: Sequence[tuple[int, int, str]] = (),
        is_fence: bool = False,
    ) -> ObjectHead:
        return ObjectHead(
            first=number,
            last=number,
            epoch=self._epoch or 0,
            writer=self._manifest.writer,
            is_fence=is_fence,
            reach=reach_of(extent),
            dropped=list(dropped),
            apart=list(apart),
        )

    def _create(self, number: int, data: bytes) -> bool:
        """Create a segment. Return False if an earlier owner has created one of this number."""
        name = _segment_name(number)
        if self._bucket.create(name, data) is not None:
            return True
        there = self._segment(number)
        if there == data:
            return True  # our first attempt succeeded, but its answer was lost
        head, _ = decode_head(there, name)
        if head.epoch > (self._epoch or 0):
            raise self._tenure.fence(self._taken_over(None))
        return False

    def renew(self) -> None:
        """Send a heartbeat."""
        self._change_manifest(msgspec.structs.replace(self._manifest, heartbeat=self._manifest.heartbeat + 1))

    def release(self) -> None:
        """Give up ownership."""
        self._change_manifest(msgspec.structs.replace(self._manifest, owner=None))

    def _change_manifest(self, manifest: StoreManifest) -> None:
        tag = self._bucket.replace(manifest_format.NAME, manifest_format.encode(manifest), tag=self._tag)
        self._tag = tag if tag is not None else self._tag_if_ours(manifest)
        self._manifest = manifest

    def _tag_if_ours(self, manifest: StoreManifest) -> str:
        """Return the tag of the manifest if it is the one we wrote: the answer to our first attempt may have been
        lost.
        """
        there, tag = self._read_manifest()
        if there == manifest:
            return tag
        if there.writer not in self._writers:
            if self._epoch is None:
                raise StoreLocked(f"Another process took over {self._bucket.name} at the same time.")
            raise self._tenure.fence(self._taken_over(there.owner))
        raise StoreFailed(f"The manifest of {self._bucket.name} has changed unexpectedly.")

    # --------------------------------------------------------------------------------------------------------- reading

    def pages(self, entry: CatalogueEntry) -> list[StoredPage]:
        """Return the pages of an object."""
        if entry.pages is not None:
            return entry.pages
        (data,) = self._ranges(entry.name, [0], [entry.head_bytes + entry.page_bytes])
        head, start = decode_head(data, entry.name)
        return list(pages_in(head, data, start))

    def read(self, located: LocatedBodies) -> dict[int, bytes]:
        """Return bodies by number."""
        found = dict(zip(located.apart, self._apart(list(located.apart.values())), strict=True))
        for name, parts in located.parts.items():
            found.update(self._bodies(name, parts))
        return found

    def _apart(self, names: Sequence[str]) -> list[bytes]:
        """Return bodies that are objects of their own."""
        return _in_parallel(self._whole, names) if len(names) > 1 else [self._whole(name) for name in names]

    def _bodies(self, name: str, parts: Sequence[tuple[int, int, int]]) -> dict[int, bytes]:
        """Return bodies of an object by number; ``parts`` has the number, offset and size of each."""
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
        """Return the raw content of objects."""
        return _in_parallel(self._whole, [entry.name for entry in entries])

    def add_run(self, last: int, data: bytes) -> str:
        """Write a run, which does not count before it is adopted, and return its name."""
        name = f"{_RUNS}/{last:016d}-{secrets.token_hex(8)}"
        self._bucket.create(name, data)
        return name

    def adopt(
        self, catalogue: Catalogue, entries: Sequence[CatalogueEntry], run: tuple[str, ObjectHead, int] | None
    ) -> list[str]:
        """Replace objects by the run they were merged into, and return the names that may be deleted now."""
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
        # Deletion comes after the manifest has changed, and may be lost in a crash: the next recovery deletes what no
        # manifest names. The other order could lose data.
        return sorted(gone - set(map(_segment_name, new_fences)))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects that the manifest no longer names."""
        self._bucket.delete(names)


def _add_segment(catalogue: Catalogue, number: int, data: bytes) -> None:
    name = _segment_name(number)
    head, start = decode_head(data, name)
    catalogue.add(name, head, start, list(pages_in(head, data, start)))
