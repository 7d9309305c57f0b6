"""The entries of the board: nodes, groups, splits, config, budgets, a secret, as JSON with names like ``group/a``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.hook_limits import NO_HOOK_LIMITS, HookLimits
from fairlane.model.partitions import Split
from fairlane.ports.board import Entry

NODE: Final = "node/"
GROUP: Final = "group/"
CONFIG: Final = "config/"
BUDGET: Final = "budget/"
SPLIT: Final = "split/"
TRUST: Final = "trust"


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node. The node itself writes the entry; other nodes only set ``is_draining``.

    Attributes:
        address: where other nodes and clients reach its HTTP interface.
        beat: grows while the node lives; the value itself has no meaning.
        incarnation: a name that no other process has.
        is_draining: whether its groups should move elsewhere.
        capacity: how much load it can take, relative to other nodes.
        load: the load of each group that it has open.
        demand: the weights of the queues that each throttle holds up, added up by throttle and group.
        grpc: the address of its gRPC interface, if it has one.
        version: the version of Fairlane that it runs.
        takeovers: how many groups it has opened whose previous owner had died.
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
        home: the node that should own it; None if none has been chosen.
        is_pinned: whether an operator moved it there, so that it stays while that node lives.
        moves: how often its home has changed.
        left_by: the process that had it before and is known to have ended; empty if there is none. So a home that has
            no evidence itself, because it was started later, need not wait for that process either.
    """

    queues: list[str]
    home: str | None = None
    is_pinned: bool = False
    moves: int = 0
    left_by: str = ""


class SplitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is split into partitions; see ``fairlane.model.partitions``.

    Attributes:
        partitions: how many partitions take new messages.
        made: how many partitions exist.
        key_from: where the queue's policy takes the fairness key of a message from.
        on_enqueue: the script of the queue, which may choose another key.
        hook_limits: the limits of the script.
    """

    partitions: int
    made: int
    key_from: str | tuple[str, ...] | None = None
    on_enqueue: str | None = None
    hook_limits: HookLimits = NO_HOOK_LIMITS

    @property
    def key_rules(self) -> tuple[object, ...]:
        """What decides the fairness key of a message, apart from the message itself."""
        return self.key_from, self.on_enqueue, self.hook_limits

    @property
    def split(self) -> Split:
        """What producers and consumers need to know about it."""
        by_message = self.key_from is None and self.on_enqueue is None
        return Split(partitions=self.partitions, made=self.made, by_message=by_message)


class ConfigEntry(msgspec.Struct, frozen=True):
    """A config value, for every group."""

    value: str


class SecretEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The secret by which nodes know each other; see ``node_proofs``. It is created once."""

    secret: str

    def __repr__(self) -> str:
        return "SecretEntry()"


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The part of a throttle that a group may use: millionths of a token per second, and whole tokens saved up."""

    rate: int = 0
    burst: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How a throttle is divided among groups; see ``budgets``.

    Attributes:
        rate: millionths of a token per second in total.
        burst: whole tokens saved up in total.
        granted: the most that each group's engine may use, or still uses.
        wanted: what each group should have; less than granted asks its owner to return the difference.
        openings: the number of the latest opening of each group that has reached the board.
    """

    rate: int
    burst: int
    granted: dict[str, Share] = {}
    wanted: dict[str, Share] = {}
    openings: dict[str, int] = {}


class BoardView(msgspec.Struct, frozen=True, kw_only=True):
    """A board as it was read, by kind of entry.

    Attributes:
        secret: the secret of the cluster; None before its first node has joined.
        versions: the version of every entry, by its name on the board; a change names the version it replaces.
    """

    nodes: dict[str, NodeEntry] = {}
    groups: dict[str, GroupEntry] = {}
    config: dict[str, str] = {}
    budgets: dict[str, Budget] = {}
    splits: dict[str, SplitEntry] = {}
    secret: SecretEntry | None = None
    versions: dict[str, str] = {}


T = TypeVar("T")
_encoder = msgspec.json.Encoder()


def encode(entry: NodeEntry | GroupEntry | ConfigEntry | Budget | SplitEntry | SecretEntry) -> bytes:
    """Encode an entry for the board."""
    return _encoder.encode(entry)


def decode(name: str, value: bytes, kind: type[T]) -> T:
    """Decode an entry of the board. Raises StoreCorrupt if it is not of the kind that its name says."""
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"The entry {name!r} of the cluster's board can't be read: {error}.") from error


def view_of(entries: Mapping[str, Entry]) -> BoardView:
    """Return a board by kind of entry. Kinds that a later version has added are skipped.

    Raises:
        StoreCorrupt: an entry is not of the kind that its name says.
    """
    secret = decode(TRUST, entries[TRUST].value, SecretEntry) if TRUST in entries else None
    view = BoardView(nodes={}, groups={}, config={}, budgets={}, splits={}, secret=secret, versions={})
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
    """Return the group of each queue. If two groups list a queue, the first by name has it."""
    return {queue: group for group in sorted(groups, reverse=True) for queue in groups[group].queues}
