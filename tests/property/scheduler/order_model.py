"""Textbook deficit round robin: lists, and rounds that are simulated one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]

PATIENCE = 8  # a child that can pay within this many rounds stays in the ring; others are set aside


@dataclass
class Job:
    """A named cost."""

    name: int
    cost: int


@dataclass(eq=False)
class Child:
    """A key: a leaf with jobs, or a group with children that take turns."""

    share: int = 1
    parent: Child | None = None
    jobs: list[Job] = field(default_factory=list)
    children: dict[str, Child] = field(default_factory=dict)
    deficit: int = 0
    is_paused: bool = False
    is_open: bool = False
    was_idle: bool = True
    last_turn: int = 0
    wanted: int = 0
    # The turns of its children.
    round: int = 1
    serving: Child | None = None
    resumed: list[Child] = field(default_factory=list)
    order: list[Child | None] = field(default_factory=lambda: [None])  # None is the boundary between two rounds
    aside: list[Child] = field(default_factory=list)  # children that cannot pay for several rounds

    def has_work(self) -> bool:
        return bool(self.jobs) or any(child.has_work() for child in self.children.values())

    def is_ready(self) -> bool:
        if self.is_paused:
            return False
        return bool(self.jobs) or any(child.is_ready() for child in self.children.values())


class NaiveOrder:
    """Hands out jobs in the order of turns."""

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self.root = Child()
        self.weights: dict[Path, int] = {}
        self.paused: set[Path] = set()

    def child(self, path: Path) -> Child:
        node = self.root
        for depth, name in enumerate(path, start=1):
            if name not in node.children:
                share = self.quantum * self.weights.get(path[:depth], 1)
                node.children[name] = Child(share, node, is_paused=path[:depth] in self.paused)
            node = node.children[name]
        return node

    def knows(self, path: Path) -> bool:
        node = self.root
        for name in path:
            if name not in node.children:
                return False
            node = node.children[name]
        return True

    def offer(self, path: Path, job: Job) -> None:
        leaf = self.child(path)
        before = _ready_line(leaf)
        leaf.jobs.append(job)
        self._note(leaf, before, is_next_changed=len(leaf.jobs) == 1)

    def cancel(self, path: Path, name: int) -> None:
        leaf = self.child(path)
        before = _ready_line(leaf)
        is_next = bool(leaf.jobs) and leaf.jobs[0].name == name
        leaf.jobs = [job for job in leaf.jobs if job.name != name]
        self._note(leaf, before, is_next_changed=is_next)

    def set_paused(self, path: Path, *, is_paused: bool) -> None:
        (self.paused.add if is_paused else self.paused.discard)(path)
        if self.knows(path):  # an unknown key changes nothing for the waiting ones
            node = self.child(path)
            before = _ready_line(node)
            node.is_paused = is_paused
            self._note(node, before)

    def settle(self, path: Path, difference: int) -> None:
        node: Child | None = self.child(path)
        while node is not None and node.parent is not None:
            node.deficit -= difference
            if node.was_idle:
                node.deficit = min(node.deficit, 0)
            _recall(node)
            node = node.parent

    def take(self, count: int) -> list[int]:
        """Return the names of the next jobs."""
        out: list[int] = []
        while len(out) < count and self.root.is_ready():
            leaf = self.root
            while leaf.children:
                leaf = _next_turn(leaf)
            broke = _first_that_cannot_pay(leaf)
            if broke is not None:
                _end_turn(broke, leaf.jobs[0].cost)
            else:
                out.append(self._serve(leaf))
        return out

    def _serve(self, leaf: Child) -> int:
        before = _ready_line(leaf)
        job = leaf.jobs.pop(0)
        for node in _line(leaf):
            node.deficit -= job.cost
        self._note(leaf, before)
        for node in _line(leaf):
            # A child without deficit goes to the back; one with deficit left may need several more rounds.
            cost = node.jobs[0].cost if node.jobs and node.deficit > 0 else 1
            if node.parent is not None and node.parent.serving is node and node.deficit < cost:
                _end_turn(node, cost)
        return job.name

    def _note(self, node: Child, before: list[bool], *, is_next_changed: bool = True) -> None:
        """Enter or leave the rings above, after something about a node has changed."""
        for child, was_ready in zip(_line(node), before, strict=True):
            ready = child.is_ready()
            if ready and not was_ready:
                _enter(child)
            elif was_ready and not ready:
                _leave(child)
            elif ready and is_next_changed:
                _recall(child)
            if not child.has_work():
                child.was_idle, child.is_open, child.deficit = True, False, min(child.deficit, 0)


def _line(node: Child) -> list[Child]:
    """Return a node and those above it, without the root."""
    line = []
    while node.parent is not None:
        line.append(node)
        node = node.parent
    return line


def _ready_line(node: Child) -> list[bool]:
    return [child.is_ready() for child in _line(node)]


def _ring(child: Child) -> Child:
    assert child.parent is not None
    return child.parent


def _enter(child: Child) -> None:
    ring = _ring(child)
    was_idle, child.was_idle = child.was_idle, False
    if child in ring.order:
        return
    if child.is_open or (not was_idle and child.last_turn < ring.round):
        for resumed in (child, ring.serving):
            if resumed is not None and resumed not in ring.resumed:
                ring.resumed.append(resumed)
        ring.serving = None
    else:
        ring.order.append(child)


def _leave(child: Child) -> None:
    ring = _ring(child)
    if ring.serving is child:
        ring.serving = None
    if child in ring.aside:
        ring.aside.remove(child)
        child.last_turn = ring.round


def _recall(child: Child) -> None:
    """Put a child that was set aside and has changed back into the ring."""
    ring = _ring(child)
    if child in ring.aside:
        ring.aside.remove(child)
        ring.order.append(child)


def _next_turn(ring: Child) -> Child:
    while ring.serving is None:
        if ring.resumed:
            child: Child | None = ring.resumed.pop(0)
            assert child is not None
            if not child.is_ready() or child in ring.order:
                continue
        else:
            child = ring.order.pop(0)
            if child is None:
                _begin_round(ring)
                continue
            if not child.is_ready():
                child.last_turn = ring.round - 1
                continue
        ring.serving = child
        if not child.is_open:
            _open_turn(child)
    return ring.serving


def _begin_round(ring: Child) -> None:
    """Give every child set aside its share; those that can pay then go first, in the order they were set aside."""
    ring.round += 1
    ring.order.append(None)
    able = [child for child in ring.aside if child.deficit + child.share >= child.wanted]
    ring.aside = [child for child in ring.aside if child not in able]
    ring.order[:0] = able
    for child in ring.aside:
        child.deficit += child.share


def _open_turn(child: Child) -> None:
    child.is_open = True
    child.last_turn = _ring(child).round
    child.deficit += child.share


def _first_that_cannot_pay(leaf: Child) -> Child | None:
    cost = leaf.jobs[0].cost
    return next((node for node in _line(leaf) if node.deficit < cost), None)


def _end_turn(child: Child, cost: int) -> None:
    ring = _ring(child)
    if child.last_turn < ring.round:
        _open_turn(child)
        if child.deficit >= cost:
            return
    ring.serving = None
    child.is_open = False
    child.wanted = cost
    if child.deficit + PATIENCE * child.share >= cost:
        ring.order.append(child)
    else:
        ring.aside.append(child)
