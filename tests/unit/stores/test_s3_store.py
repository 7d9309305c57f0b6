"""Behaviour of the S3 store beyond the contract."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fairlane.adapters.s3.bucket import AzureContainer, S3Bucket
from fairlane.adapters.s3.log import APART_BYTES_MIN
from fairlane.adapters.s3.store import S3Store
from fairlane.adapters.shared.ownership import Ownership
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreFailed
from fairlane.ports.store import Extent
from fairlane.testing.store_contract import commit_of
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import S3Server
from tests.kit.waiting import PATIENCE_S
from tests.unit.broker.brokers import Background

_numbers = itertools.count(1)


@pytest.fixture
def bucket(s3: S3Server) -> S3Bucket:
    return S3Bucket(f"{BUCKET}/unit-{next(_numbers)}", endpoint=s3.endpoint, is_anonymous=True)


@contextmanager
def opened(bucket: S3Bucket, **options: Any) -> Iterator[S3Store]:
    store = S3Store(bucket, ownership=Ownership(sends_heartbeats=False), **({"window_ms": 0} | options))
    store.recover()
    try:
        yield store
    finally:
        store.close()


def compact(store: S3Store) -> int:
    return sum(1 for _ in iter(store.compact, False))


def segments(bucket: S3Bucket) -> list[str]:
    return [name for name, _ in bucket.names("segments")]


def runs(bucket: S3Bucket) -> list[str]:
    return [name for name, _ in bucket.names("runs")]


def fill(store: S3Store, sequences: range, *, body: bytes = b"x" * 1_000) -> None:
    for sequence in sequences:
        store.write(commit_of(sequence, 1, bodies=[(sequence, body)]))
        store.sync()


# ------------------------------------------------------------------------------------------------------------- merging


def test_segments_become_one_run(bucket: S3Bucket) -> None:
    """Many small objects are merged into one, which holds all that is needed, also for the next process."""
    with opened(bucket, segments_max=10) as store:
        fill(store, range(1, 41))
        assert compact(store) == 1
        assert len(runs(bucket)) == 1
        assert segments(bucket) == [f"{1:016d}"], "Only the fence is left."
        assert [page.sequence for page in store.pages(0)] == list(range(1, 41))
        assert store.bodies([1, 40]) == [b"x" * 1_000] * 2
    with opened(bucket) as again:
        assert again.recover() == Extent(first=1, base=1, next_sequence=41)
        assert [page.sequence for page in again.pages(20)] == list(range(21, 41))
        assert again.bodies([1, 40, 41]) == [b"x" * 1_000] * 2 + [None]


def test_merging_leaves_out_what_is_not_needed(bucket: S3Bucket) -> None:
    """Dropped bodies and trimmed pages are gone from the bucket after a merge."""
    with opened(bucket, segments_max=10) as store:
        fill(store, range(1, 31))
        compact(store)
        before = store.size()
        store.write(commit_of(31, 1, dropped=list(range(1, 31)), base=31, trim=31))
        store.sync()
        for sequence in range(32, 45):
            store.write(commit_of(sequence, 1, base=31, trim=31))
            store.sync()
        compact(store)
        assert store.size() < before / 10
        assert store.bodies([1, 30]) == [None, None]
    with opened(bucket) as again:
        assert again.recover() == Extent(first=31, base=31, next_sequence=45)
        assert again.bodies([1, 30]) == [None, None]
        assert [page.sequence for page in again.pages(0)] == list(range(31, 45))


def test_a_body_that_was_dropped_stays_so_while_its_run_is_too_big_to_merge(bucket: S3Bucket) -> None:
    """A run that is not merged keeps a dropped body, but no process that opens the store later sees it."""
    big = bytes(APART_BYTES_MIN - 1)
    with opened(bucket, segments_max=4) as store:
        store.write(commit_of(1, 1, bodies=[(number, big) for number in (1, 2, 3, 4, *range(1_001, 1_301))]))
        store.sync()
        compact(store)
        store.write(commit_of(2, 1, dropped=[1]))
        store.sync()
        fill(store, range(3, 12), body=b"small")
        compact(store)
        assert len(runs(bucket)) == 2
    with opened(bucket) as again:
        assert [body is not None for body in again.bodies([1, 2, 3, 4, 11])] == [False, True, True, True, True]


def test_a_sparse_run_is_rewritten(bucket: S3Bucket) -> None:
    """When most of a big run was dropped, its space is freed without waiting for new segments."""
    with opened(bucket, segments_max=4) as store:
        store.write(commit_of(1, 1, bodies=[(number, bytes(60_000)) for number in range(1, 31)]))
        store.sync()
        fill(store, range(2, 6), body=b"small")
        compact(store)
        store.write(commit_of(6, 1, dropped=list(range(1, 30))))
        store.sync()
        assert compact(store) >= 1
        assert store.size() < 75_000
        assert store.bodies([29, 30]) == [None, bytes(60_000)]


# -------------------------------------------------------------------------------------------------------- large bodies

LARGE = bytes(range(256)) * (APART_BYTES_MIN // 256)


def apart(bucket: S3Bucket) -> list[int]:
    """Return the numbers of the bodies that are objects of their own."""
    return [int(name.partition("-")[0]) for name, _ in bucket.names("bodies")]


def test_a_large_body_is_an_object_of_its_own(bucket: S3Bucket) -> None:
    """It is read by itself, survives merges of everything around it, and is found by the next process."""
    with opened(bucket, segments_max=4) as store:
        store.write(commit_of(1, 1, bodies=[(1, LARGE), (99, b"small")]))
        store.sync()
        fill(store, range(2, 12), body=b"small")
        assert compact(store) >= 1
        assert apart(bucket) == [1]
        assert store.bodies([1, 99, 11]) == [LARGE, b"small", b"small"]
        assert store.size() > len(LARGE)
    with opened(bucket) as again:
        assert again.bodies([1, 99]) == [LARGE, b"small"]


def test_a_large_body_that_is_dropped_is_deleted(bucket: S3Bucket) -> None:
    """Its object goes with the next heartbeat after the commit that dropped it is durable, and never comes back."""
    with opened(bucket, segments_max=4) as store:
        store.write(commit_of(1, 1, bodies=[(1, LARGE), (2, LARGE)]))
        store.sync()
        store.write(commit_of(2, 1, dropped=[1]))
        store.delete_dropped()
        assert apart(bucket) == [1, 2], "The drop is not durable yet."
        store.sync()
        store.delete_dropped()
        assert apart(bucket) == [2]
        assert store.bodies([1, 2]) == [None, LARGE]
        fill(store, range(3, 12), body=b"small")
        compact(store)
    with opened(bucket) as again:
        assert again.bodies([1, 2]) == [None, LARGE]


def test_large_bodies_that_no_segment_names_are_swept_at_the_next_opening(bucket: S3Bucket) -> None:
    """A process that dies between a body and its segment, or before a deletion, leaves nothing behind."""
    with opened(bucket) as store:
        store.write(commit_of(1, 1, bodies=[(1, LARGE), (2, LARGE)]))
        store.sync()
        store.write(commit_of(2, 1, dropped=[1]))
        store.sync()
        bucket.create(f"bodies/{9:016d}-deadbeef", LARGE)
        assert apart(bucket) == [1, 2, 9]
    with opened(bucket) as again:
        assert apart(bucket) == [2]
        assert again.bodies([1, 2, 9]) == [None, LARGE, None]


def test_commits_do_not_wait_for_a_fetch(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bucket is asked for a large body, others are written, synced and read."""
    asked, may_answer, read = threading.Event(), threading.Event(), bucket.read

    def slow(name: str) -> tuple[bytes, str] | None:
        if name.startswith("bodies/") and threading.current_thread() is not threading.main_thread():
            asked.set()
            assert may_answer.wait(PATIENCE_S)
        return read(name)

    monkeypatch.setattr(bucket, "read", slow)
    large = bytes(APART_BYTES_MIN)
    with opened(bucket) as store:
        store.write(commit_of(1, 1, bodies=[(1, large)]))
        store.sync()
        fetching = Background(lambda: store.fetch([1]))
        assert asked.wait(PATIENCE_S)
        store.write(commit_of(2, 1, bodies=[(2, b"small")]))
        store.sync()
        assert store.bodies([1, 2]) == [large, b"small"]
        may_answer.set()
        assert fetching.get() == [large]


def test_the_number_of_runs_grows_slowly(bucket: S3Bucket) -> None:
    """Hundreds of segments that are all needed end in a few runs."""
    with opened(bucket, segments_max=8) as store:
        for start in range(1, 401, 8):
            fill(store, range(start, start + 8), body=b"x" * 100)
            compact(store)
        assert len(runs(bucket)) <= 7
        assert store.bodies(list(range(1, 401))) == [b"x" * 100] * 400


def test_leftovers_of_an_interrupted_merge_are_deleted(bucket: S3Bucket) -> None:
    """A run that no manifest names, and segments that a run replaces, are gone after the next opening."""
    with opened(bucket, segments_max=4) as store:
        fill(store, range(1, 10))
        kept = {name: bucket.read(f"segments/{name}") for name in segments(bucket)}
        compact(store)
    for name, found in kept.items():
        assert found is not None
        bucket.create(f"segments/{name}", found[0])
    bucket.create("runs/orphan", b"half a merge")
    with opened(bucket) as again:
        assert "orphan" not in runs(bucket)
        assert len(segments(bucket)) == 2, "There are two fences, of two openings."
        assert [page.sequence for page in again.pages(0)] == list(range(1, 10))


def test_merging_beside_commits_and_reads_is_safe(bucket: S3Bucket) -> None:
    """While two threads merge continuously, every read finds what was written, and nothing fails."""
    failures: list[BaseException] = []
    over = threading.Event()
    with opened(bucket, segments_max=2) as store:

        def merge() -> None:
            try:
                while not over.is_set():
                    store.compact()
            except BaseException as error:  # noqa: BLE001 - the test shows it
                failures.append(error)

        threads = [threading.Thread(target=merge) for _ in range(2)]
        for thread in threads:
            thread.start()
        for sequence in range(1, 121):
            dropped = [sequence - 10] if sequence > 10 else []
            store.write(commit_of(sequence, 1, bodies=[(sequence, b"%d" % sequence)], dropped=dropped))
            store.sync()
            oldest = max(1, sequence - 9)
            assert store.bodies([oldest, sequence]) == [b"%d" % oldest, b"%d" % sequence]
        over.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [page.sequence for page in store.pages(0)] == list(range(1, 121))


# --------------------------------------------------------------------------------------------------------- bad weather


def test_a_missing_segment_is_detected(bucket: S3Bucket) -> None:
    """A gap among the segments is damage, never silently ignored."""
    with opened(bucket) as store:
        fill(store, range(1, 6))
    bucket.delete([f"segments/{3:016d}"])
    with pytest.raises(StoreCorrupt, match="missing"):
        S3Store(bucket).recover()


def test_a_missing_run_is_detected(bucket: S3Bucket) -> None:
    """A run that the manifest names must exist."""
    with opened(bucket, segments_max=2) as store:
        fill(store, range(1, 6))
        compact(store)
    bucket.delete(f"runs/{name}" for name in runs(bucket))
    with pytest.raises(StoreCorrupt, match="missing"):
        S3Store(bucket).recover()


@pytest.mark.parametrize("damage", [b"", b"FLS1\x00\x00\x00\x05abc", b"something else entirely"])
def test_a_damaged_segment_is_detected(bucket: S3Bucket, damage: bytes) -> None:
    """An object that cannot be decoded is damage."""
    with opened(bucket) as store:
        fill(store, range(1, 4))
    bucket.delete([f"segments/{2:016d}"])
    bucket.create(f"segments/{2:016d}", damage)
    with pytest.raises(StoreCorrupt):
        S3Store(bucket).recover()


@pytest.mark.parametrize("text", ["{", json.dumps({"format": 99})])
def test_a_manifest_of_another_version_is_refused(bucket: S3Bucket, text: str) -> None:
    """A manifest that cannot be decoded, or has a later format, is left unchanged."""
    bucket.create("manifest.json", text.encode())
    with pytest.raises(StoreCorrupt):
        S3Store(bucket).recover()


def test_an_unreachable_server_is_a_failure() -> None:
    """The error for an unreachable endpoint says so."""
    store = S3Store(S3Bucket("bucket/prefix", endpoint="http://127.0.0.1:9", is_anonymous=True))
    with pytest.raises(StoreFailed, match="s3://bucket/prefix could not"):
        store.recover()


class Careless(BaseHTTPRequestHandler):
    """An object server that stores everything and ignores conditions, as some do."""

    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["content-length"]))
        self._answer(b"", {"etag": '"same"'})

    def do_HEAD(self) -> None:
        self._answer(b"", {"etag": '"same"', "last-modified": "Sun, 15 Nov 2026 12:00:00 GMT"})

    def do_POST(self) -> None:
        keys = re.findall(rb"<Key>.*?</Key>", self.rfile.read(int(self.headers["content-length"])))
        deleted = b"".join(b"<Deleted>" + key + b"</Deleted>" for key in keys)
        self._answer(b"<DeleteResult>" + deleted + b"</DeleteResult>", {"content-type": "application/xml"})

    def _answer(self, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in ({"content-length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_server_that_ignores_conditions_is_refused() -> None:
    """If two processes could overwrite each other, no store is opened, and the error says why."""
    handler = type("Handler", (Careless,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        store = S3Store(S3Bucket("bucket/prefix", endpoint=endpoint, is_anonymous=True))
        with pytest.raises(InvalidArgument, match="does not honour If-None-Match"):
            store.recover()
        server.shutdown()


class LossyBucket(S3Bucket):
    """A bucket whose answers can get lost: the client repeats the request, or gives up."""

    is_repeated = False
    """Whether each write is sent twice, since the first answer was lost."""
    gives_up_on = ""
    """The object whose next write is carried out, but never answered."""

    def create(self, name: str, data: bytes) -> str | None:
        if self.is_repeated:
            super().create(name, data)
        tag = super().create(name, data)
        self._lose(name)
        return tag

    def replace(self, name: str, data: bytes, *, tag: str) -> str | None:
        if self.is_repeated:
            super().replace(name, data, tag=tag)
        new_tag = super().replace(name, data, tag=tag)
        self._lose(name)
        return new_tag

    def _lose(self, name: str) -> None:
        if self.gives_up_on and name.startswith(self.gives_up_on):
            self.gives_up_on = ""
            raise StoreFailed("The answer is lost.")


@pytest.fixture
def lossy(s3: S3Server) -> LossyBucket:
    return LossyBucket(f"{BUCKET}/lossy-{next(_numbers)}", endpoint=s3.endpoint, is_anonymous=True)


def test_a_repeated_write_is_no_failure(lossy: LossyBucket) -> None:
    """When a write is repeated because its first answer was lost, the second attempt recognises its own work."""
    with opened(lossy, segments_max=3) as store:
        lossy.is_repeated = True
        fill(store, range(1, 6))
        store.renew()
        assert compact(store) == 1
        assert [page.sequence for page in store.pages(0)] == list(range(1, 6))
        lossy.is_repeated = False  # the probe of the next opening would not expect repetitions


@pytest.mark.parametrize("name", ["manifest.json", "segments/"])
def test_an_opening_whose_answer_was_lost_still_owns_the_store(lossy: LossyBucket, name: str) -> None:
    """When the answer to an opening is lost, first or later, the next attempt is not locked out by the one before."""
    store = S3Store(lossy, window_ms=0, ownership=Ownership(sends_heartbeats=False))
    for sequence in (1, 2):
        lossy.gives_up_on = name
        with pytest.raises(StoreFailed, match="lost"):
            store.recover()
        assert store.recover().next_sequence == sequence
        store.write(commit_of(sequence, 1))
        store.sync()
    store.close()


def test_a_segment_whose_answer_was_lost_is_there_after_recovery(lossy: LossyBucket) -> None:
    """A commit that failed without an answer may be durable, and recovery finds it."""
    with opened(lossy) as store:
        lossy.gives_up_on = "segments/"
        store.write(commit_of(1, 1))
        with pytest.raises(StoreFailed):
            store.sync()
        assert store.recover().next_sequence == 2


# -------------------------------------------------------------------------------------------------------------- window


def test_writes_are_a_window_apart(bucket: S3Bucket) -> None:
    """The first write goes at once, and each that follows waits until the window since the one before is over."""
    with opened(bucket, window_ms=250) as store:
        fill(store, range(1, 2))
        begun_s = time.monotonic()
        fill(store, range(2, 4))
        assert time.monotonic() - begun_s > 0.25


def test_closing_waits_for_no_window(bucket: S3Bucket) -> None:
    """A store that is closed writes what it has at once, however long its window is."""
    begun_s = time.monotonic()
    with opened(bucket, window_ms=60_000) as store:
        fill(store, range(1, 2))
        store.write(commit_of(2, 1))
    with opened(bucket) as again:
        assert [page.sequence for page in again.pages(0)] == [1, 2]
    assert time.monotonic() - begun_s < 50


@pytest.mark.parametrize("window_ms", [-1, 60_001])
def test_an_invalid_window_is_refused(bucket: S3Bucket, window_ms: int) -> None:
    """A window is 0 to 60 seconds."""
    with pytest.raises(InvalidArgument, match="window_ms"):
        S3Store(bucket, window_ms=window_ms)


def test_a_missing_container_is_told(azure: AzuriteServer) -> None:
    """A container that does not exist fails the store, and names itself."""
    store = S3Store(AzureContainer("nothing-here/prefix", endpoint=azure.endpoint))
    with pytest.raises(StoreFailed, match="az://nothing-here/prefix could not write"):
        store.recover()
    store.close()


def test_missing_objects_are_no_reason_to_keep_others(azure: AzuriteServer) -> None:
    """Azure refuses to delete an object that is missing; all others of the same call are deleted."""
    container = AzureContainer(f"{BUCKET}/unit-{next(_numbers)}", endpoint=azure.endpoint)
    for name in ("a/1", "a/3"):
        container.create(name, b"x")
    container.delete(["a/1", "a/2", "a/3"])
    container.delete(["a/2"])
    assert container.names("a") == []


def test_listed_tags_are_those_of_the_writes(azure: AzuriteServer) -> None:
    """Azure lists tags without quotes; a board must recognise what it has read before."""
    container = AzureContainer(f"{BUCKET}/unit-{next(_numbers)}", endpoint=azure.endpoint)
    assert container.tags("a") == {}
    tag = container.create("a/1", b"x")
    assert container.tags("a") == {"a/1": tag}
