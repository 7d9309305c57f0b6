"""A cluster in one process: nodes with doors that listen on loopback, over a board and stores with owners in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.board import MemoryBoard
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.groups import Groups
from fairlane.cluster.node import Node, NodeTerms
from fairlane.errors import StoreFailed, StoreFenced, StoreLocked
from fairlane.model.partitions import first_number, served_name
from fairlane.ports.board import Entry
from fairlane.ports.store import Commit, Extent, Store, StoredPage
from fairlane.server.api_keys import ApiKeys
from fairlane.server.cluster_node import opened_gateway, share_api_keys
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.interfaces.websocket import QuickSocket
from fairlane.server.settings import ServerSettings
from tests.kit.waiting import PATIENCE_S, until

HEARTBEAT_TIMEOUT_MS = 10_000
"""So long that no node takes another for dead only because the machine is busy."""
SOON_MS = 1_500
"""For tests in which a node dies and others take over from it."""


@dataclass
class Shelf:
    """One store of a group, which one node at a time may own."""

    store: MemoryStore = field(default_factory=MemoryStore)
    epoch: int = 0
    owner: str | None = None
    process: str = ""


@dataclass
class Shelves:
    """The stores of all groups, and which owners still show signs of life."""

    of: dict[str, Shelf] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)

    def shelf(self, group: str) -> Shelf:
        return self.of.setdefault(group, Shelf())


class OwnedStore:
    """A store on a shelf, whose owner is fenced by the epoch."""

    def __init__(
        self, shelves: Shelves, group: str, owner: str, *, process: str = "", ended: frozenset[str] = frozenset()
    ) -> None:
        self._shelves = shelves
        self._group = group
        self._shelf = shelves.shelf(group)
        self._owner = owner
        self._process = process
        self._ended = ended
        self._epoch: int | None = None

    def recover(self) -> Extent:
        if self._epoch is not None:
            self.check_owned()
        if self._group in self._shelves.failing:
            raise StoreFailed("The store does not answer.")
        holder = self._shelf.owner
        is_over = holder in self._shelves.dead or self._shelf.process in self._ended
        if holder not in (None, self._owner) and not is_over:
            raise StoreLocked(f"It belongs to {holder}.", retry_after_ms=10)
        self._shelf.epoch += 1
        self._shelf.owner, self._epoch = self._owner, self._shelf.epoch
        self._shelf.process = self._process
        return self._shelf.store.recover()

    def check_owned(self) -> None:
        if self._epoch != self._shelf.epoch:
            raise StoreFenced("Another node has taken over.")

    def write(self, commit: Commit) -> None:
        self.check_owned()
        self._shelf.store.write(commit)

    def sync(self) -> None:
        self.check_owned()
        if self._group in self._shelves.failing:
            raise StoreFailed("The store does not answer.")

    def pages(self, after: int) -> Iterator[StoredPage]:
        return self._shelf.store.pages(after)

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        return self._shelf.store.bodies(numbers)

    def size(self) -> int:
        return self._shelf.store.size()

    def close(self) -> None:
        if self._epoch == self._shelf.epoch:
            self._shelf.owner = None


class Line:
    """A board that a node may be cut off from."""

    def __init__(self, board: MemoryBoard) -> None:
        self._board = board
        self.is_cut = False

    def _through(self) -> MemoryBoard:
        if self.is_cut:
            raise StoreFailed("The board is out of reach.")
        return self._board

    def read(self) -> dict[str, Entry]:
        return self._through().read()

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        return self._through().put(name, value, version=version)

    def remove(self, name: str, *, version: str) -> bool:
        return self._through().remove(name, version=version)

    def wait(self, timeout_s: float) -> None:
        self._through().wait(timeout_s)

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        self._board.attend(process, on_lost)

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        return self._board.ended(processes)

    def is_attending(self) -> bool:
        return self._board.is_attending()

    def hang_up(self) -> None:
        self._board.hang_up()

    def lose_session(self) -> None:
        self._board.cut()

    def close(self) -> None:
        self._board.close()


class Member:
    """One node: its loop, its server, and an HTTP client in front of them."""

    def __init__(self, name: str, cluster: Cluster, *, requires_auth: bool) -> None:
        self.name = name
        self._cluster = cluster
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.groups = Groups(node=name, clock_ms=SystemClock().now_ms)
        self.line = Line(cluster.board.another())
        terms = NodeTerms(
            name=name,
            address=self.address,
            heartbeat_timeout_ms=cluster.heartbeat_timeout_ms,
            groups_max=cluster.groups_max,
        )
        self.node = Node(self.line, self.groups, opens=self._open, terms=terms)
        self._requires_auth = requires_auth
        self.server: ServerContext
        self.http = httpx.AsyncClient(base_url=self.address, timeout=PATIENCE_S)
        self._open_parts = contextlib.AsyncExitStack()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def _open(self, group: str, ended: frozenset[str]) -> AsyncBroker:
        store: Store = OwnedStore(self._cluster.shelves, group, self.name, process=self.node.process, ended=ended)
        if first_number(group):
            store = NumberedStore(store, first=first_number(group))
        hooks = LuaHooks(lambda _queue, _key: None)
        engine = Engine(store, hooks=hooks, clock=SystemClock(), entropy=SystemEntropy(), reopens=False)
        engine.open()
        return AsyncBroker(engine)

    async def start(self) -> None:
        await self.node.join()
        gateway = await self._open_parts.enter_async_context(opened_gateway(self.node, ServerSettings()))
        api_keys = ApiKeys(self.groups, is_required=self._requires_auth)
        self.server = ServerContext(gateway, api_keys=api_keys)
        await api_keys.load()
        share_api_keys(self.node, api_keys)
        config = uvicorn.Config(
            HttpInterface(self.server), lifespan="off", log_config=None, ws=QuickSocket, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # older ones install them
        self._serving = asyncio.create_task(self._serve(self._server))
        await until(lambda: self._server is not None and self._server.started, "the node listens")

    async def _serve(self, server: uvicorn.Server) -> None:
        await server._serve(sockets=[self._listener])

    async def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(f"/v1/{path}", json={} if body is None else body, headers=fields)

    async def done(self, path: str, body: object = None, **headers: str) -> Any:
        """Return the answer to what must not be refused as a whole."""
        answer = await self.post(path, body, **headers)
        assert answer.is_success, answer.text
        return answer.json()

    def serves(self, queue: str) -> bool:
        """Return whether the node owns a queue or partition; a plain name means the first partition."""
        return served_name(queue) in self.groups._here

    async def freeze(self) -> None:
        """Stop its heartbeat while its interfaces go on answering."""
        for task in self.node._running:
            task.cancel()
        self._cluster.shelves.dead.add(self.name)

    async def kill(self) -> None:
        """Stop all that it does, and end its connection to the board, while its store seems to have an owner."""
        for task in self.node._running:
            task.cancel()
        self.line.hang_up()

    async def stop(self) -> None:
        await self.http.aclose()
        self.server.draining.set()
        self.server.closing.set()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        await self._open_parts.aclose()
        await self.node.leave()


@dataclass
class Cluster:
    """Nodes by name, and what they share."""

    board: MemoryBoard = field(default_factory=MemoryBoard)
    shelves: Shelves = field(default_factory=Shelves)
    groups_max: int = 32
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    members: dict[str, Member] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    async def add(self, name: str, *, requires_auth: bool = False) -> Member:
        """Add one more node."""
        member = Member(name, self, requires_auth=requires_auth)
        await member.start()
        self.members[name] = member
        return member

    def owner(self, queue: str) -> Member:
        """Return the node that serves a queue."""
        return next(member for member in self.members.values() if member.serves(queue))

    def others(self, queue: str) -> list[Member]:
        """Return the nodes that do not."""
        return [member for member in self.members.values() if not member.serves(queue)]


@contextlib.asynccontextmanager
async def cluster_of(
    names: str,
    *,
    requires_auth: bool = False,
    groups_max: int = 32,
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
) -> AsyncIterator[Cluster]:
    """Start nodes named by the letters, one after the other."""
    cluster = Cluster(groups_max=groups_max, heartbeat_timeout_ms=heartbeat_timeout_ms)
    try:
        for name in names:
            await cluster.add(name, requires_auth=requires_auth)
        yield cluster
    finally:
        for member in cluster.members.values():
            await member.stop()
