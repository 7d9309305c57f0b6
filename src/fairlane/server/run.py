"""Serving: from settings to a listening process, and from a signal to its orderly end.

Going down has three steps. First it drains (see ``going_down``). Then connections end, and what they had goes back.
Then the broker is closed, and the process ends with 0. A second signal ends the grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fairlane import __version__
from fairlane.assembly import BrokerConfig, open_async_broker, shown_url
from fairlane.cluster.gateway import ClusterGateway
from fairlane.cluster.node import Node
from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.gateway.local import LocalGateway
from fairlane.gateway.protocol import Gateway
from fairlane.server.api_keys import KeyRing
from fairlane.server.cluster_node import hand_over, joined, opened_gateway, share_api_keys
from fairlane.server.context import ServerContext
from fairlane.server.dispatch import DISPATCH
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.logs import set_up_logs
from fairlane.server.settings import MEMORY, ServerSettings, check, check_tls
from fairlane.server.shutdown import drain
from fairlane.server.tracing.spans import Spans
from fairlane.verbs.keys import CreateKey, Grant

try:
    import uvicorn

    from fairlane.server.interfaces.websocket import QuickSocket
except ImportError as error:
    raise ImportError("The server needs uvicorn and websockets: install fairlane[server].") from error

from fairlane.server.interfaces.request_head import BoundedHeadProtocol

STORE: Final = "store"
FIRST_KEY: Final = "admin.key"
_BACKLOG: Final = 2048
_LAST_WORDS_S: Final = 5
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_MALLOC_OPTIONS: Final = ((-1, 64 << 20), (-2, 4 << 20), (-3, 16 << 20))
"""When glibc gives memory back, how much it takes at once, and from which size on it maps: see mallopt(3)."""
_log = logging.getLogger("fairlane.server")


def serve(settings: ServerSettings, *, tell: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. ``tell`` is told where everything is; by default it is printed.

    Raises:
        InvalidArgument: the settings make no sense, or nothing can listen there.
        StoreFailed, StoreLocked, StoreCorrupt: the data can't be opened.
    """
    check(settings)
    check_tls(settings)
    set_up_logs(settings.log_format, settings.log_level)
    _hold_memory()
    _run(_serve(settings, tell if tell is not None else _print))


def _hold_memory() -> None:
    """Let the allocator of glibc keep memory that is free, up to a limit.

    By default it gives back what a batch of messages took, and takes it anew for the next one, page by page, which
    costs a tenth of what an enqueue costs.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another allocator
    for option, size in _MALLOC_OPTIONS:
        mallopt(option, size)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(settings: ServerSettings, tell: Callable[[str], None]) -> None:
    with _listening(settings) as listener:
        async with _opened(settings, listener) as gateway:
            context = await _server_context(gateway, settings, tell)
            server = _Server(_uvicorn(HttpInterface(context), settings))
            node = gateway.member if isinstance(gateway, ClusterGateway) else None
            if node is not None:
                share_api_keys(node, context.api_keys)
            with _on_signals(context, server, settings.grace_ms, node):
                async with (
                    _spans(settings, context) as context.spans,
                    _beside(context.api_keys.keep_sweeping()),
                    _grpc(context, settings) as grpc_address,
                    _beside(_attended(node, _advertised(grpc_address, node), server)),
                ):
                    _tell_all(settings, listener, grpc_address, tell)
                    await server.serve(sockets=[listener])
    _log.info("The server has shut down.")


@contextlib.asynccontextmanager
async def _opened(settings: ServerSettings, listener: socket.socket) -> AsyncIterator[LocalGateway | ClusterGateway]:
    """Open the broker of a server on its own, or join the cluster."""
    if settings.node is not None:
        async with (
            joined(settings, _address_of(settings, listener)) as node,
            opened_gateway(node, settings) as gateway,
        ):
            yield gateway
        return
    path = _store_of(settings)
    config = BrokerConfig(path=path, durability=settings.durability, settings=settings.broker, owns_process=True)
    async with await open_async_broker(config) as broker:
        yield LocalGateway(broker, DISPATCH)


def _advertised(grpc_address: str | None, node: Node | None) -> str | None:
    """Return where others reach gRPC: at the port it listens on, under the name by which they reach the node."""
    if grpc_address is None or node is None:
        return None
    host = urlsplit(node.terms.address).hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{grpc_address.rpartition(':')[2]}"


async def _attended(node: Node | None, grpc_address: str | None, server: uvicorn.Server) -> None:
    """Tell others where gRPC is, and end if another process takes the place of this node."""
    if node is None:
        return
    node.grpc = grpc_address
    await node.replaced.wait()
    server.should_exit = True


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let something go on for as long as the context lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _store_of(settings: ServerSettings) -> Path | str | None:
    """Return the URL of the store, or its folder, made if it is not there; None for memory."""
    if settings.store is not None:
        return settings.store
    if settings.data == MEMORY:
        return None
    path = Path(settings.data).expanduser() / STORE
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _reports_of(settings: ServerSettings) -> Path | None:
    return None if settings.reports is None else Path(settings.reports).expanduser()


async def _server_context(gateway: Gateway, settings: ServerSettings, tell: Callable[[str], None]) -> ServerContext:
    keys = KeyRing(gateway.observed, is_required=settings.asks_for_keys)
    await keys.load()
    if keys.is_required and not len(keys):
        await _make_first_key(keys, settings, tell)
    names = {settings.host.lower(), urlsplit(settings.advertise or "").hostname or settings.host.lower()}
    hosts = _LOOPBACK_NAMES | names if settings.is_loopback else None
    return ServerContext(
        gateway,
        api_keys=keys,
        limits=settings.limits,
        hosts=hosts,
        reports=_reports_of(settings),
        metrics_queues_max=settings.metrics_queues_max,
        metrics_keys_max=settings.metrics_keys_max,
    )


async def _make_first_key(keys: KeyRing, settings: ServerSettings, tell: Callable[[str], None]) -> None:
    """Make a key with all rights where there is none at all, since none could ever be made without one."""
    if settings.data == MEMORY:
        raise InvalidArgument("A server that asks for keys needs a folder for its data, not memory.")
    created = await keys.create(CreateKey(name="first", grants=(Grant(right="admin"),)), Caller())
    file = _write_secret(Path(settings.data), created.key)
    tell(f"A first key with all rights is in {file}; make others with it, and remove the file.")


def _write_secret(folder: Path, key: str) -> Path:
    file = folder.expanduser() / FIRST_KEY
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
        written.write(key + "\n")
    return file


# ------------------------------------------------------------------------------------------------------------ listening


def _listening(settings: ServerSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # from now on whoever connects is served, once all is open
    except OSError as error:
        raise InvalidArgument(f"Nothing can listen on {settings.host}:{settings.port}: {error}.") from error
    listener.setblocking(False)  # noqa: FBT003 - its only argument
    return listener


def _grpc(context: ServerContext, settings: ServerSettings) -> contextlib.AbstractAsyncContextManager[str | None]:
    if settings.grpc_port is None:
        return contextlib.nullcontext()
    try:
        from fairlane.server.interfaces.grpc_server import grpc_opened  # noqa: PLC0415 - who does without gRPC need not install it
    except ImportError as error:
        raise InvalidArgument(f"grpc_port is set, but: {error}") from error
    return grpc_opened(context, settings)


def _spans(settings: ServerSettings, context: ServerContext) -> contextlib.AbstractAsyncContextManager[Spans | None]:
    if settings.otlp_endpoint is None:
        return contextlib.nullcontext()
    try:
        from fairlane.server.tracing.otlp import spans_sent  # noqa: PLC0415 - who does not trace need not install it
    except ImportError as error:
        raise InvalidArgument(f"otlp_endpoint is set, but: {error}") from error
    return spans_sent(settings.otlp_endpoint, now_ms=context.observed.now_ms, seen=context.metrics.note_exemplar)


def _uvicorn(app: HttpInterface, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        http=BoundedHeadProtocol,
        ws=QuickSocket,
        ws_max_size=settings.limits.body_bytes_max,
        ws_per_message_deflate=False,  # it would cost far more time than loopback or a data centre costs
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_LAST_WORDS_S,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=settings.tls_client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca is not None else ssl.CERT_NONE,
    )


def _tell_all(
    settings: ServerSettings, listener: socket.socket, grpc_address: str | None, tell: Callable[[str], None]
) -> None:
    address = _address_of(settings, listener)
    scheme, _, at = address.partition("://")
    stream = "wss" if settings.has_tls else "ws"
    tell(f"Fairlane {__version__} listens on {scheme}://{at}")
    tell(f"  stream   {stream}://{at}/v1/stream")
    if grpc_address is not None:
        tell(f"  gRPC     {grpc_address}")
    tell(f"  look     {scheme}://{at}/")
    tell(f"  docs     {scheme}://{at}/docs")
    tell(f"  metrics  {scheme}://{at}/metrics")
    if settings.otlp_endpoint is not None:
        tell(f"  traces   {settings.otlp_endpoint}")
    tell(f"  data     {_place_of(settings)}")
    if settings.node is not None:
        tell(f"  node     {settings.node}, reached by others at {settings.advertise or address}")
    tell(f"  keys     {'asked for' if settings.asks_for_keys else 'not asked for'}")


def _address_of(settings: ServerSettings, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{'https' if settings.has_tls else 'http'}://{at}"


def _place_of(settings: ServerSettings) -> str:
    if settings.store is not None:
        return shown_url(settings.store)
    return "in memory, gone with the process" if settings.data == MEMORY else settings.data


# ----------------------------------------------------------------------------------------------------------- going down


class _Server(uvicorn.Server):
    """A server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@contextlib.contextmanager
def _on_signals(context: ServerContext, server: uvicorn.Server, grace_ms: int, node: Node | None) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    going: set[asyncio.Task[None]] = set()

    def go() -> None:
        if going:
            context.closing.set()  # somebody is in a hurry
        else:
            going.add(loop.create_task(_go_down(context, server, grace_ms / 1000, node)))

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, go)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _go_down(context: ServerContext, server: uvicorn.Server, grace_s: float, node: Node | None) -> None:
    if node is not None:
        grace_s -= await hand_over(node, context, grace_s=grace_s)
    await drain(context, grace_s=max(0.0, grace_s))
    server.should_exit = True
