"""The command ``worker``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.durations import DURATION
from fairlane.cli.errors import Stop, exit_code_of, report
from fairlane.cli.session import Place, Session, pass_session
from fairlane.errors import Forbidden, Unauthenticated

if TYPE_CHECKING:  # the help needs none of these
    from fairlane.client import AsyncClient
    from fairlane.worker import Worker

T = TypeVar("T")
_CHILD = "FAIRLANE_WORKER_CHILD"
_THREAD_S = 1.0


@click.command(name="worker")
@click.argument("app", metavar="MODULE:APP")
@click.option("--processes", type=click.IntRange(1, 1_024), default=1, show_default=True, help="How many to run.")
@click.option("--grace", type=DURATION, help="How long handlers may go on after SIGTERM; by default as the app says.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Lines for people or machines.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="The least that is logged.",
)
@pass_session
def worker_command(
    session: Session, /, *, app: str, processes: int, grace: int | None, log_format: str, log_level: str
) -> None:
    """Run the handlers of a worker, such as tasks:app.

    Interrupt it, or send it SIGTERM, and it finishes what it has begun and gives back the rest; a second time, and it
    gives back all. Processes that crash are started again.
    """
    from fairlane.worker.logs import set_up_logs

    set_up_logs(log_format, log_level)
    worker = _load(app)
    if grace is not None:
        worker.grace_s = grace / 1000
    if processes == 1:
        _work(session, worker)
        return
    if session.place.is_embedded:
        raise click.UsageError("Only one process can have the data in a folder; run a server.")
    raise Stop(_supervise(session.place, processes))


def _load(reference: str) -> Worker:
    from fairlane.worker import Worker

    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"It is a module and a name in it, as in tasks:app, not {reference!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as for python -m: modules of the folder one is in
    try:
        found = import_module(module_name)
    except ModuleNotFoundError as error:
        raise click.BadParameter(f"{error}.") from error
    worker = getattr(found, name, None)
    if not isinstance(worker, Worker):
        raise click.BadParameter(f"{reference!r} is no Worker.")
    return worker


def _work(session: Session, worker: Worker) -> None:
    """Run the worker in this process."""
    is_child = os.environ.get(_CHILD) is not None
    try:
        _run(_until_signalled(session.place, worker))
    except (Unauthenticated, Forbidden) as error:
        from fairlane.worker.processes import FATAL_CODE

        report(error, is_json=session.is_json)
        raise Stop(FATAL_CODE if is_child else exit_code_of(error)) from error
    finally:
        sys.stderr.flush()
    if _has_threads_left():
        os._exit(0)  # a handler that outlasted its grace does not keep the process


def _has_threads_left() -> bool:
    """Tell whether there are handlers that go on; threads that have nothing to do end in a moment."""
    import threading

    from fairlane.worker.running import THREAD_PREFIX

    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    for thread in threads:
        thread.join(_THREAD_S / len(threads))
    return any(thread.is_alive() for thread in threads)


async def _until_signalled(place: Place, worker: Worker) -> None:
    if os.environ.get(_CHILD) is not None:
        _stop_with_parent(worker)
    client = _client(place, worker)
    if client is None:
        await worker.run_until_signalled()
        return
    async with client:
        await worker.run_until_signalled(client)


def _stop_with_parent(worker: Worker) -> None:
    """Drain when the parent is gone, and with it the other end of our standard input."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(sys.stdin.fileno())
        worker.stop()

    loop.add_reader(sys.stdin.fileno(), gone)


def _client(place: Place, worker: Worker) -> AsyncClient | None:
    """Return the client of a folder; a server is left to the worker, which waits for it."""
    if place.data is not None:
        from fairlane.client import AsyncClient

        return AsyncClient.embedded(place.store)
    worker.use_server(place.server, api_key=place.api_key, tls=place.tls())
    return None


def _run(main: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def _supervise(place: Place, count: int) -> int:
    """Run children of this very command, each with one process."""
    from fairlane.worker.processes import Processes

    command = [sys.executable, "-m", "fairlane", *sys.argv[1:], "--processes", "1"]
    keys = {} if place.api_key is None else {"FAIRLANE_API_KEY": place.api_key}
    environment = os.environ | {_CHILD: "1", "FAIRLANE_SERVER": place.server} | keys

    async def supervise() -> int:
        return await Processes(command, count, environment=environment).run()

    return asyncio.run(supervise())
