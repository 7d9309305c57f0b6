"""A store that becomes a group while the cluster creates one of its queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.assembly import open_broker
from fairlane.cluster import adoption
from fairlane.cluster.adoption import adopt_store
from fairlane.cluster.entries import CONFIG, GROUP, GroupEntry, decode, encode
from fairlane.errors import StoreFailed
from fairlane.ports.board import Entry

REMEDY = "Queue 'orders' was created in group 'orders' while the store was copied.* Delete the copy at .*copy again"
CLUSTER = "postgresql://db/queues"


class WatchedBoard(MemoryBoard):
    """A board that tells when a group has been put on it."""

    on_group: Callable[[str, Entry], None] = staticmethod(lambda _name, _entry: None)

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        entry = super().put(name, value, version=version)
        if entry is not None and name.startswith(GROUP):
            self.on_group(name, entry)
        return entry


class Adoption:
    """A store with the queues ``mails`` and ``orders``, and the board of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.board = MemoryBoard()
        self.watched = WatchedBoard(self.board._shared)
        self._source = str(folder / "source")
        with open_broker(self._source) as broker:
            broker.create_queue("mails")
            broker.create_queue("orders")
            broker.set_config("weight:orders:acme", "3")

    def create(self, queue: str) -> None:
        """Create a queue as a node does for a worker, in a group of its own; it may be there already."""
        self.board.put(GROUP + queue, encode(GroupEntry(queues=[queue], home="ann")), version=None)

    def run(self, progress: adoption.Progress = lambda _done, _all: None) -> adoption.Adopted:
        return adopt_store(self._source, CLUSTER, progress)

    def groups(self) -> dict[str, list[str]]:
        entries = {name: entry for name, entry in self.board.read().items() if name.startswith(GROUP)}
        return {
            name.removeprefix(GROUP): decode(name, entry.value, GroupEntry).queues for name, entry in entries.items()
        }


@pytest.fixture
def adopting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adoption:
    made = Adoption(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(adoption, "open_board", lambda _url: made.watched)
    monkeypatch.setattr(adoption, "group_url", lambda _url, _group, **_options: "copy")
    return made


def test_a_store_becomes_a_group(adopting: Adoption) -> None:
    """Without a conflict all queues are in the new group, and the config is on the board."""
    done = adopting.run()
    assert (done.group, done.queues) == ("mails", ("mails", "orders"))
    assert adopting.groups() == {"mails": ["mails", "orders"]}
    assert f"{CONFIG}weight:orders:acme" in adopting.board.read()


def test_a_queue_that_was_created_during_the_copy_is_kept(adopting: Adoption) -> None:
    """The group of the cluster, which may have messages by then, stays the only one with the queue."""
    with pytest.raises(StoreFailed, match=REMEDY):
        adopting.run(lambda _done, _all: adopting.create("orders"))
    assert adopting.groups() == {"orders": ["orders"]}
    assert not [name for name in adopting.board.read() if name.startswith(CONFIG)]


@pytest.mark.parametrize("has_home", [False, True])
def test_a_queue_that_was_created_as_the_group_was_added_is_kept(adopting: Adoption, *, has_home: bool) -> None:
    """The new group leaves the board again, even if a node has been chosen for it meanwhile."""

    def interfere(name: str, entry: Entry) -> None:
        adopting.create("orders")
        if has_home:
            changed = msgspec.structs.replace(decode(name, entry.value, GroupEntry), home="ann")
            assert adopting.board.put(name, encode(changed), version=entry.version) is not None

    adopting.watched.on_group = interfere
    with pytest.raises(StoreFailed, match=REMEDY):
        adopting.run()
    assert adopting.groups() == {"orders": ["orders"]}
