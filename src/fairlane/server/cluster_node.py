"""A server as a node of a cluster: joining, answering for other nodes, and handing over at shutdown."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fairlane import __version__
from fairlane.assembly import (
    AsyncBroker,
    BrokerConfig,
    OwnerProcess,
    SystemClock,
    group_url,
    open_board,
    open_group,
    open_hooks,
)
from fairlane.broker.steady_time import BrokerTime
from fairlane.cluster.cluster_verbs import SPECIAL
from fairlane.cluster.gateway import ClusterGateway
from fairlane.cluster.groups import Groups
from fairlane.cluster.node import Node, NodeTerms
from fairlane.cluster.partitions.keys import PartitionKeys
from fairlane.cluster.partitions.messages import SPREAD
from fairlane.cluster.peers import Peers
from fairlane.errors import InvalidArgument
from fairlane.gateway.protocol import Gateway
from fairlane.model.partitions import first_number
from fairlane.server.api_keys import PREFIX, ApiKeys
from fairlane.server.context import ServerContext
from fairlane.server.settings import ServerSettings
from fairlane.server.watchdog import Watchdog
from fairlane.wire.tls import client_context

_THREADS_BESIDE: Final = 8
"""Threads in addition to one per group, which syncs its commits."""
_log = logging.getLogger("fairlane.server")


@asynccontextmanager
async def joined(settings: ServerSettings, address: str, watchdog: Watchdog) -> AsyncIterator[Node]:
    """Join the cluster while the context lasts.

    Args:
        settings: the settings of the server.
        address: the URL at which other nodes reach this one, unless the settings have ``advertise``.
        watchdog: watches the event loop; a node that hangs does not renew the ownership of its groups.

    Raises:
        StoreFailed: the board of the cluster cannot be reached.
    """
    name = settings.node or ""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(settings.groups_max + _THREADS_BESIDE))
    terms = NodeTerms(
        name=name,
        address=(settings.advertise or address).rstrip("/"),
        heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
        groups_max=settings.groups_max,
        version=__version__,
    )
    groups = Groups(node=name, clock_ms=BrokerTime(SystemClock()).advance)

    async def opens(group: str, ended: frozenset[str]) -> AsyncBroker:
        doubt = partial(node.is_in_doubt, node.process)
        process = OwnerProcess(name=node.process, stuck_s=watchdog.stuck_s, is_in_doubt=doubt, ended=ended)
        return await _open_group(settings, process, group)

    node = Node(open_board(settings.store or ""), groups, opens=opens, terms=terms)
    try:
        await node.join()
        _log.info("Node %s joined the cluster.", name, extra={"node": name})
        yield node
    finally:
        await node.leave()


async def _open_group(settings: ServerSettings, process: OwnerProcess, group: str) -> AsyncBroker:
    url = group_url(
        settings.store or "", group, owner=settings.node or "", heartbeat_timeout_ms=settings.heartbeat_timeout_ms
    )
    config = BrokerConfig(path=url, durability=settings.durability, settings=settings.broker, owns_process=True)
    return await open_group(config, counts_from=first_number(group), process=process)


@asynccontextmanager
async def opened_gateway(node: Node, settings: ServerSettings) -> AsyncIterator[ClusterGateway]:
    """Open the gateway of a node for as long as the context lasts."""
    peers = Peers(node.proofs().for_node_at, tls=_tls(settings), frame_bytes_max=settings.limits.body_bytes_max)

    def config_value(key: str) -> str | None:
        return node.board.view.config.get(key)

    hooks = open_hooks(config_value, settings.broker)
    keys = PartitionKeys(hooks, splits=lambda: node.board.view.splits, now_ms=node.groups.now_ms)
    gateway = ClusterGateway(node, peers, special=SPECIAL, spread=SPREAD, keys=keys)
    try:
        yield gateway
    finally:
        await gateway.close()


def share_api_keys(node: Node, api_keys: ApiKeys) -> None:
    """Keep the API keys of a server equal to those of the cluster, whichever node created or revoked them."""

    def on_config(config: Mapping[str, str]) -> None:
        api_keys.replace({key: value for key, value in config.items() if key.startswith(PREFIX)})

    on_config(node.board.view.config)
    node.on_config = on_config


def renew_tls(gateway: Gateway, settings: ServerSettings) -> None:
    """Use the TLS files as they are now for new connections to other nodes.

    Raises:
        InvalidArgument: a file cannot be used.
    """
    if isinstance(gateway, ClusterGateway):
        gateway.renew_tls(_tls(settings))


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
    """Return the TLS context for connections to other nodes; this node presents its own certificate."""
    if not settings.has_tls and settings.peer_ca is None:
        return None
    try:
        return client_context(
            ca=settings.peer_ca,
            certificate=settings.tls_certificate,
            certificate_key=settings.tls_key,
            trusts_system=True,
        )
    except OSError as error:  # such as a file that was replaced after it was checked
        raise InvalidArgument(f"The TLS files cannot be used for connections to other nodes: {error}.") from error


async def hand_over(node: Node, server: ServerContext, *, grace_s: float) -> float:
    """Hand all groups over to other nodes; return how long that took. A second signal cuts it short."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    draining, hurrying = asyncio.create_task(node.drain(grace_s=grace_s)), asyncio.create_task(server.closing.wait())
    await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, hurrying):
        task.cancel()
    await asyncio.gather(draining, hurrying, return_exceptions=True)
    return loop.time() - begun_s
