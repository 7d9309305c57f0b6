"""What is on the board of a cluster: nodes, groups, splits, config, budgets; as JSON, named as in ``group/orders``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.partitions import Split
from fairlane.ports.board import Entry

NODE: Final = "node/"
GROUP: Final = "group/"
CONFIG: Final = "config/"
BUDGET: Final = "budget/"
SPLIT: Final = "split/"


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node, written by itself alone; only ``is_draining`` is set by others too.

    Attributes:
        address: where other nodes and clients reach its HTTP door.
        beat: grows while it lives; nothing but the growing means anything.
        incarnation: a name that no other start of any node has.
        is_draining: whether its groups shall go elsewhere.
        capacity: how much it can bear, compared with others.
        load: of each group that is open here how much it takes.
        demand: of each throttle and each group that is open here how much waits for the throttle.
        grpc: the address of its gRPC door, if it has one.
        version: the version of Fairlane that it runs.
        takeovers: how many groups it has opened that another had left without closing.
    """

    address: str
    beat: int
    incarnation: str
    is_draining: bool = False
    capacity: float = 1.0
    load: dict[str, float] = {}
    demand: dict[str, dict[str, int]] = {}
    grpc: str | None = None
    version: str = ""
    takeovers: int = 0


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A group of queues that share a journal and an owner.

    Attributes:
        queues: the names of its queues, without their dead-letter queues.
        home: the node that shall own it; None for one that nobody was chosen for.
        is_pinned: whether it stays there while that node lives.
        moves: how often its home has changed.
    """

    queues: list[str]
    home: str | None = None
    is_pinned: bool = False
    moves: int = 0


class SplitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is split into partitions; see ``fairlane.model.partitions``.

    Attributes:
        partitions: how many of them take new messages.
        made: how many there are.
        key_from: where the queue's policy takes the fairness key of a message from.
        on_enqueue: the script of the queue, which may say another.
    """

    partitions: int
    made: int
    key_from: str | tuple[str, ...] | None = None
    on_enqueue: str | None = None

    @property
    def split(self) -> Split:
        """What producers and consumers need to know of it."""
        by_message = self.key_from is None and self.on_enqueue is None
        return Split(partitions=self.partitions, made=self.made, by_message=by_message)


class ConfigEntry(msgspec.Struct, frozen=True):
    """A value of the config, for every group."""

    value: str


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What of a throttle a group may use: millionths of a token a second, and whole tokens saved up."""

    rate: int = 0
    burst: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How a throttle is split over groups; see ``budgets``.

    Attributes:
        rate: millionths of a token a second in all.
        burst: whole tokens saved up in all.
        granted: of each group the most that its engine may use, or still uses.
        wanted: of each group what it shall have; less than is granted asks its owner to give something back.
        openings: of each group the number of the latest opening that has come to the board.
    """

    rate: int
    burst: int
    granted: dict[str, Share] = {}
    wanted: dict[str, Share] = {}
    openings: dict[str, int] = {}


class BoardView(msgspec.Struct, frozen=True, kw_only=True):
    """A board as it was read, by the kinds of its entries, each under its own name.

    Attributes:
        versions: of every entry, under its name on the board, what to change it by.
    """

    nodes: dict[str, NodeEntry] = {}
    groups: dict[str, GroupEntry] = {}
    config: dict[str, str] = {}
    budgets: dict[str, Budget] = {}
    splits: dict[str, SplitEntry] = {}
    versions: dict[str, str] = {}


T = TypeVar("T")
_encoder = msgspec.json.Encoder()


def encode(entry: NodeEntry | GroupEntry | ConfigEntry | Budget | SplitEntry) -> bytes:
    """Return an entry as it is on the board."""
    return _encoder.encode(entry)


def decode(name: str, value: bytes, kind: type[T]) -> T:
    """Return an entry from what is on the board.

    Raises:
        StoreCorrupt: it is not what its name says.
    """
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"The entry {name!r} of the cluster's board can't be read: {error}.") from error


def view_of(entries: Mapping[str, Entry]) -> BoardView:
    """Return a board by the kinds of its entries. What a later version has added is passed over.

    Raises:
        StoreCorrupt: an entry is not what its name says.
    """
    view = BoardView(nodes={}, groups={}, config={}, budgets={}, splits={}, versions={})
    for name, entry in entries.items():
        view.versions[name] = entry.version
        if name.startswith(NODE):
            view.nodes[name.removeprefix(NODE)] = decode(name, entry.value, NodeEntry)
        elif name.startswith(GROUP):
            view.groups[name.removeprefix(GROUP)] = decode(name, entry.value, GroupEntry)
        elif name.startswith(CONFIG):
            view.config[name.removeprefix(CONFIG)] = decode(name, entry.value, ConfigEntry).value
        elif name.startswith(BUDGET):
            view.budgets[name.removeprefix(BUDGET)] = decode(name, entry.value, Budget)
        elif name.startswith(SPLIT):
            view.splits[name.removeprefix(SPLIT)] = decode(name, entry.value, SplitEntry)
    return view


def groups_by_queue(groups: Mapping[str, GroupEntry]) -> dict[str, str]:
    """Return of each queue the name of its group; of two that list it, the first by name has it."""
    return {queue: group for group in sorted(groups, reverse=True) for queue in groups[group].queues}
