"""Compaction: merging small objects into larger ones, without what is no longer needed.

Theory of operation
-------------------
Every sync writes one small object. Recovery reads every object, and old pages and bodies must be deleted at some time,
so segments are merged into runs. Two rules bound the cost:

- Segments are merged with the runs before them as long as a run is not larger than what is merged already. So each byte
  is rewritten about as often as the store doubles, and the number of runs grows with the logarithm of its size, up to
  the largest size of a run.
- A run of which less than half is needed is rewritten by itself. So the store is at most about twice as large as its
  live data.

``plan`` and ``merge`` are pure: they decide and build. ``S3Store.compact`` does the requests, and ``S3Log.adopt`` makes
the result count, by one compare-and-set of the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.adapters.s3.catalogue import Catalogue, CatalogueEntry
from fairlane.adapters.s3.object_format import ObjectHead, body_places, decode_head, encode, pages_in, reach_of
from fairlane.ports.store import StoredPage

SEGMENTS_MAX = 64
"""The number of segments from which they are merged."""
SEGMENT_BYTES_MAX = 16 << 20
RUN_BYTES_MAX = 32 << 20
_SPARSE_BYTES_MIN = 64 << 10


def plan(catalogue: Catalogue, *, segments_max: int = SEGMENTS_MAX) -> list[CatalogueEntry]:
    """Return the consecutive objects that should be merged into one next, or none."""
    first = catalogue.extent.first
    segments = [entry for entry in catalogue.entries if not entry.is_run]
    runs = [entry for entry in catalogue.entries if entry.is_run]
    if len(segments) >= segments_max or sum(entry.size for entry in segments) >= SEGMENT_BYTES_MAX:
        return _with_small_runs(runs, _first_of(segments), first)
    for run in runs:
        content_bytes = run.page_bytes + run.body_bytes
        if content_bytes >= _SPARSE_BYTES_MIN and 2 * run.needed_bytes(first) < content_bytes:
            return [run]
    return []


def _first_of(segments: Sequence[CatalogueEntry]) -> list[CatalogueEntry]:
    """Return as many of the oldest segments as fit into a run."""
    chosen: list[CatalogueEntry] = []
    size = 0
    for entry in segments:
        size += entry.size
        if chosen and size > RUN_BYTES_MAX:
            break
        chosen.append(entry)
    return chosen


def _with_small_runs(runs: Sequence[CatalogueEntry], chosen: list[CatalogueEntry], first: int) -> list[CatalogueEntry]:
    # Sizes are those after the merge: a run that is mostly garbage is cheap to take along, and should be.
    weight = sum(entry.needed_bytes(first) for entry in chosen)
    for run in reversed(runs):
        needed = run.needed_bytes(first)
        if needed > weight or needed + weight > RUN_BYTES_MAX:
            break
        chosen = [run, *chosen]
        weight += needed
    return chosen


def merge(
    catalogue: Catalogue, entries: Sequence[CatalogueEntry], contents: Sequence[bytes], *, signature: tuple[int, str]
) -> tuple[bytes, ObjectHead, int] | None:
    """Return objects merged into one, its head, and the number of bytes before its pages; None if nothing is needed.

    The last object of the store is always needed, since its head says how far the store reaches.
    """
    first = catalogue.extent.first
    pages, bodies = list[StoredPage](), dict[int, bytes]()
    dropped, apart = list[int](), list[tuple[int, int, str]]()
    for entry, data in zip(entries, contents, strict=True):
        head, start = decode_head(data, entry.name)
        pages += [page for page in pages_in(head, data, start) if page.sequence >= first]
        needed = (place for place in body_places(head, start) if catalogue.is_needed(place[0], entry))
        bodies |= {number: data[offset : offset + size] for number, offset, size in needed}
        apart += [each for each in head.apart if catalogue.is_apart(each[0])]
        # A drop is needed as long as an earlier object may still hold the body: recovery, which reads objects in
        # order, would otherwise bring the body back to life.
        dropped += [number for number in head.dropped if catalogue.hides(number, before=entries[0])]
    if not (pages or bodies or dropped or apart or entries[-1] is catalogue.entries[-1]):
        return None
    head = ObjectHead(
        first=entries[0].head.first,
        last=entries[-1].head.last,
        epoch=signature[0],
        writer=signature[1],
        reach=reach_of(entries[-1].head.extent),
        dropped=dropped,
        apart=apart,
    )
    return encode(head, pages, bodies)
