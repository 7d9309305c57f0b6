"""A server process: from settings to a listening server, and from a signal to its end.

A shutdown has three steps. First the server drains (see ``shutdown``). Then it closes the connections, and messages in
flight return to their queues. Then it closes the broker, and the process exits with 0. A second signal ends the grace
period.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fairlane.assembly import BrokerConfig, open_async_broker
from fairlane.cluster.gateway import ClusterGateway
from fairlane.cluster.node import Node
from fairlane.data_folder import STORE_FOLDER, mark_made
from fairlane.errors import InvalidArgument
from fairlane.files import restrict, write_secret
from fairlane.gateway.caller import Caller
from fairlane.gateway.local import LocalGateway
from fairlane.gateway.protocol import Gateway
from fairlane.logs import set_up_json_log, set_up_logs
from fairlane.platforms import posix_fault
from fairlane.runtime import run
from fairlane.server.access_log import LOGGER
from fairlane.server.addresses import networks_of
from fairlane.server.api_keys import ApiKeys
from fairlane.server.cluster_node import hand_over, joined, opened_gateway, renew_tls, share_api_keys
from fairlane.server.context import ServerContext
from fairlane.server.descriptors import fit
from fairlane.server.http_server import HttpServer
from fairlane.server.listener import address_of, listen, print_banner
from fairlane.server.origins import ANY_ADDRESS
from fairlane.server.settings import MEMORY, ServerSettings, check, check_tls
from fairlane.server.shutdown import drain
from fairlane.server.tracing.spans import Spans
from fairlane.server.watchdog import Watchdog, watching
from fairlane.verbs.keys import CreateKey, Grant
from fairlane.wire.spin import LoopSpin, has_cores

FIRST_KEY_FILE: Final = "admin.key"
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_MALLOC_OPTIONS: Final = ((-1, 64 << 20), (-2, 4 << 20), (-3, 4 << 20))
"""M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD: when glibc returns memory, how much it requests at once, and from
which size on it uses mmap, which grows in place and is returned at once. See mallopt(3)."""
_log = logging.getLogger("fairlane.server")


def serve(settings: ServerSettings, *, echo: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. ``echo`` receives the lines of the banner; by default they are printed.

    Raises:
        InvalidArgument: a setting is invalid, or the server cannot listen on the address.
        StoreFailed, StoreLocked, StoreCorrupt: the store cannot be opened.
        NotImplementedError: the platform has no POSIX signals.
    """
    if (fault := posix_fault("A server")) is not None:
        raise NotImplementedError(fault)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # from here to the end: a terminal that closes sends it at any time
    check(settings)
    check_tls(settings)
    set_up_logs(settings.log_format, settings.log_level)
    if settings.access_log:
        set_up_json_log(LOGGER)
    os.umask(0o077)  # for RocksDB's files, too: messages and keys are for the owner of the process alone
    _protect_secrets(settings)
    _keep_memory()
    run(_serve(settings, echo if echo is not None else _print))


def _protect_secrets(settings: ServerSettings) -> None:
    """Take away other users' access to the file of the first API key, and warn of a TLS key that everybody can read."""
    first_key = Path(settings.data).expanduser() / FIRST_KEY_FILE
    if first_key.is_file() and not first_key.is_symlink() and restrict(first_key):
        _log.warning("Other users could read %s. Replace this API key: create another, then revoke it.", first_key)
    if settings.tls_key is not None and Path(settings.tls_key).stat().st_mode & stat.S_IROTH:
        _log.warning("Every user of this machine can read the TLS key %s. Run: chmod o= %s", *[settings.tls_key] * 2)


def _keep_memory() -> None:
    """Make glibc's allocator keep free memory, up to a limit.

    By default it returns the memory of a batch of messages to the kernel and requests it again, page by page, for the
    next batch. That takes a tenth of the time of an enqueue.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # the C library is not glibc
    for option, size in _MALLOC_OPTIONS:
        mallopt(option, size)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _serve(settings: ServerSettings, echo: Callable[[str], None]) -> None:
    limits, first_reserved = fit(settings.limits, listeners=1 if settings.grpc_port is None else 2)
    settings = replace(settings, limits=limits)
    with listen(settings) as listener, watching() as watchdog:
        watchdog.is_starting = True
        async with _opened(settings, listener, watchdog) as gateway:
            context = await _server_context(gateway, settings, echo, watchdog)
            server = HttpServer(context, settings, listener, first_reserved=first_reserved)
            node = gateway.member if isinstance(gateway, ClusterGateway) else None
            if node is not None:
                share_api_keys(node, context.api_keys)
            with _on_signals(context, server, settings, node):
                async with (
                    _spans(settings, context) as context.spans,
                    _in_background(context.api_keys.keep_sweeping()),
                    _in_background(context.recorder.run()),
                    _grpc(context, settings) as grpc_address,
                    _in_background(_watch_node(node, _advertised(grpc_address, node), server)),
                ):
                    print_banner(settings, listener, grpc_address, echo)
                    watchdog.is_starting = False
                    _log.info("The server has started at %s.", address_of(settings, listener))
                    await server.serve()
    _log.info("The server has shut down.")


@contextlib.asynccontextmanager
async def _opened(
    settings: ServerSettings, listener: socket.socket, watchdog: Watchdog
) -> AsyncIterator[LocalGateway | ClusterGateway]:
    """Open the broker of a server on its own, or join the cluster."""
    if settings.node is not None:
        async with (
            joined(settings, address_of(settings, listener), watchdog) as node,
            opened_gateway(node, settings) as gateway,
        ):
            yield gateway
        return
    path = _store_of(settings)
    config = BrokerConfig(path=path, durability=settings.durability, settings=settings.broker, owns_process=True)
    async with await open_async_broker(config) as broker:
        if isinstance(path, Path):
            _mark_made(path.parent, broker.sequence)
        yield LocalGateway(broker)


def _mark_made(data: Path, sequence: int) -> None:
    """Note that the store was made. A full disk must not keep the server from starting: it may be drained."""
    try:
        mark_made(data, sequence=sequence)
    except OSError as error:
        _log.warning("Cannot record that %s has a store: %s. If it is lost, the server cannot tell.", data, error)


def _advertised(grpc_address: str | None, node: Node | None) -> str | None:
    """Return the gRPC address for other nodes: the host of the advertised URL with the gRPC port."""
    if grpc_address is None or node is None:
        return None
    host = urlsplit(node.terms.address).hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{grpc_address.rpartition(':')[2]}"


async def _watch_node(node: Node | None, grpc_address: str | None, server: HttpServer) -> None:
    """Publish the gRPC address, and stop the server if another process takes over the name of this node."""
    if node is None:
        return
    node.grpc = grpc_address
    await node.replaced.wait()
    server.should_exit = True


@contextlib.asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a task in the background while the context lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _store_of(settings: ServerSettings) -> Path | str | None:
    """Return the URL of the store, or its directory, which is created if missing; None for memory."""
    if settings.store is not None:
        return settings.store
    if settings.data == MEMORY:
        return None
    path = Path(settings.data).expanduser() / STORE_FOLDER
    if path.parent.exists() and not path.parent.is_dir():
        raise InvalidArgument(f"data must be a folder, and {path.parent} is a file.")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _reports_of(settings: ServerSettings) -> Path | None:
    return None if settings.reports is None else Path(settings.reports).expanduser()


async def _server_context(
    gateway: Gateway, settings: ServerSettings, echo: Callable[[str], None], watchdog: Watchdog
) -> ServerContext:
    keys = ApiKeys(gateway.observed, is_required=settings.requires_auth)
    await keys.load()
    if keys.is_required and not len(keys):
        await _create_first_key(keys, settings, echo)
    context = ServerContext(
        gateway,
        api_keys=keys,
        limits=settings.limits,
        hosts=_hosts_of(settings),
        trusted_proxies=networks_of(settings.trusted_proxies, "trusted_proxies"),
        reports=_reports_of(settings),
        metrics_queues_max=settings.metrics_queues_max,
        metrics_keys_max=settings.metrics_keys_max,
        watchdog=watchdog,
    )
    if settings.access_log:
        context.log_calls()
    if settings.spin:
        context.spin = LoopSpin(asyncio.get_running_loop().call_soon, is_on=has_cores())
    return context


def _hosts_of(settings: ServerSettings) -> frozenset[str] | None:
    """Return the names that requests may give in ``Host`` while authentication is disabled; None for any."""
    named = {name.strip().lower() for name in (settings.allowed_hosts or "").split(",") if name.strip()}
    if "*" in named:
        return None
    hosts = _LOOPBACK_NAMES | named | {settings.host.lower()}
    if settings.advertise is not None:
        hosts |= {urlsplit(settings.advertise).hostname or ""}
    if not settings.is_loopback:  # DNS rebinding needs a name, so a request to an address is safe
        hosts |= {ANY_ADDRESS, socket.gethostname().lower()}
    return hosts


async def _create_first_key(keys: ApiKeys, settings: ServerSettings, echo: Callable[[str], None]) -> None:
    """Create an API key with all rights; without a first key no other could be created."""
    if settings.data == MEMORY:
        raise InvalidArgument("Authentication needs a data directory to write the first API key to; data is :memory:.")
    created = await keys.create(CreateKey(name="first", grants=(Grant(right="admin"),)), Caller())
    file = _write_secret(Path(settings.data), created.key)
    echo(f"Created the first API key, with all rights, in {file}. Create others with it, then delete the file.")


def _write_secret(folder: Path, key: str) -> Path:
    file = folder.expanduser() / FIRST_KEY_FILE
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_secret(file, key + "\n")
    return file


# ----------------------------------------------------------------------------------------------------------- interfaces


def _grpc(context: ServerContext, settings: ServerSettings) -> contextlib.AbstractAsyncContextManager[str | None]:
    if settings.grpc_port is None:
        return contextlib.nullcontext()
    try:
        from fairlane.server.interfaces.grpc_server import grpc_opened  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise InvalidArgument(f"grpc_port is set, but: {error}") from error
    return grpc_opened(context, settings)


def _spans(settings: ServerSettings, context: ServerContext) -> contextlib.AbstractAsyncContextManager[Spans | None]:
    if settings.otlp_endpoint is None:
        return contextlib.nullcontext()
    try:
        from fairlane.server.tracing.otlp import exported_spans  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise InvalidArgument(f"otlp_endpoint is set, but: {error}") from error
    return exported_spans(settings.otlp_endpoint, now_ms=context.observed.now_ms, seen=context.metrics.note_exemplar)


# ----------------------------------------------------------------------------------------------------------- shutdown


@contextlib.contextmanager
def _on_signals(
    context: ServerContext, server: HttpServer, settings: ServerSettings, node: Node | None
) -> Iterator[None]:
    """Shut down on SIGTERM and SIGINT, and read the TLS files again on SIGHUP, while the context lasts.

    Before and after, SIGHUP is ignored. The loop's own handlers can't be left for that without an instant in which the
    signal ends the process, so this one is not among them.
    """
    loop = asyncio.get_running_loop()
    shutdowns: set[asyncio.Task[None]] = set()

    def on_signal() -> None:
        if shutdowns:
            context.closing.set()  # a second signal ends the grace period
        else:
            shutdowns.add(loop.create_task(_shut_down(context, server, settings.grace_ms / 1000, node)))

    def on_hangup(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(_renew_tls, context.gateway, server, settings)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    signal.signal(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _renew_tls(gateway: Gateway, server: HttpServer, settings: ServerSettings) -> None:
    """Read the TLS files again. A terminal that closes sends SIGHUP too, so that it never ends the server."""
    if not settings.has_tls and settings.peer_ca is None:
        _log.info("SIGHUP: there are no TLS files to reload; the server keeps running.")
        return
    try:
        server.renew_tls(settings)
        renew_tls(gateway, settings)
    except InvalidArgument as error:
        _log.error("SIGHUP: cannot use the new TLS files; the previous ones stay in use. %s", error.cause)
    else:
        _log.info("SIGHUP: reloaded the TLS files; new connections use them.")


async def _shut_down(context: ServerContext, server: HttpServer, grace_s: float, node: Node | None) -> None:
    if node is not None:
        grace_s -= await hand_over(node, context, grace_s=grace_s)
    await drain(context, grace_s=max(0.0, grace_s))
    server.should_exit = True
