"""The command ``worker``."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from fairlane.cli.errors import Quit, exit_code_of, report
from fairlane.cli.interaction import check_platform
from fairlane.cli.parameters import DURATION
from fairlane.cli.session import Endpoint, Session, pass_session
from fairlane.errors import Forbidden, Unauthenticated
from fairlane.runtime import collect_rarely, run

if TYPE_CHECKING:  # the help imports none of these
    from fairlane.client import AsyncClient
    from fairlane.worker import Worker

_CHILD = "FAIRLANE_WORKER_CHILD"
_THREAD_S = 1.0
_PROGRAM_FAILED = 2


@click.command(name="worker")
@click.argument("app", metavar="MODULE:APP")
@click.option("--processes", type=click.IntRange(1, 1_024), default=1, show_default=True, help="Processes to run.")
@click.option("--reload", "is_reloading", is_flag=True, help="Restart when a Python file below this folder changes.")
@click.option("--grace", type=DURATION, help="How long handlers may run after SIGTERM. Default: set by the app.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of log lines.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Lowest level to log.",
)
@pass_session
def worker_command(
    session: Session,
    /,
    *,
    app: str,
    processes: int,
    is_reloading: bool,
    grace: int | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run the handlers of a worker, such as tasks:app.

    On an interrupt or SIGTERM the worker finishes the handlers that are running and returns its other messages. On a
    second one it returns all messages at once. Processes that crash are restarted.

    --reload is for development. It drains the worker and starts it with the new sources; handlers that are running get
    the time of --grace. A program that can't be imported is tried again after the next change.
    """
    from fairlane.logs import set_up_logs

    check_platform("worker")
    set_up_logs(log_format, log_level, shows_process=True)
    if processes > 1 and session.endpoint.is_embedded:
        raise click.UsageError("Only one process can open a data folder; use --processes 1, or run a server.")
    if is_reloading and os.environ.get(_CHILD) is None:
        raise Quit(_supervise(session.endpoint, processes, is_reloading=True))
    worker = _load(app)
    if grace is not None:
        worker.grace_s = grace / 1000
    if processes == 1:
        _work(session, worker)
        return
    raise Quit(_supervise(session.endpoint, processes))


def _load(reference: str) -> Worker:
    from fairlane.worker import Worker

    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"Expected MODULE:APP such as tasks:app, got {reference!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # like python -m: find modules of the current folder
    found = _imported(module_name)
    worker = getattr(found, name, None)
    if not isinstance(worker, Worker):
        apps = ", ".join(sorted(key for key, value in vars(found).items() if isinstance(value, Worker)))
        what = "is not an App or a Worker" if hasattr(found, name) else "does not exist"
        raise click.BadParameter(f"{reference!r} {what}; the module has {apps or 'none'}.")
    return worker


def _imported(module_name: str) -> ModuleType:
    """Return the module of the program. If it raises, print the traceback from its own code on."""
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise click.BadParameter(f"There is no module {error.name!r} here: {Path.cwd()}.") from error
        fault: Exception = error
    except Exception as error:  # noqa: BLE001 - whatever the program raises
        fault = error
    frames = fault.__traceback__
    while frames is not None and (
        "importlib" in frames.tb_frame.f_code.co_filename or frames.tb_frame.f_globals["__name__"] == __name__
    ):
        frames = frames.tb_next
    traceback.print_exception(fault.with_traceback(frames))
    raise Quit(_PROGRAM_FAILED)


def _work(session: Session, worker: Worker) -> None:
    """Run the worker in this process."""
    is_child = os.environ.get(_CHILD) is not None
    try:
        collect_rarely()
        run(_until_signalled(session.endpoint, worker))
    except (Unauthenticated, Forbidden) as error:
        from fairlane.worker.processes import FATAL_CODE

        report(error, is_json=session.is_json)
        raise Quit(FATAL_CODE if is_child else exit_code_of(error)) from error
    finally:
        sys.stderr.flush()
    if _has_threads_left():
        os._exit(0)  # a handler that ignores the end of the grace period must not keep the process alive


def _has_threads_left() -> bool:
    """Return whether handlers are still running; idle threads get a moment to end."""
    import threading

    from fairlane.worker.threads import THREAD_PREFIX

    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    for thread in threads:
        thread.join(_THREAD_S / len(threads))
    return any(thread.is_alive() for thread in threads)


async def _until_signalled(endpoint: Endpoint, worker: Worker) -> None:
    if os.environ.get(_CHILD) is not None:
        _stop_with_parent(worker)
    client = _client(endpoint, worker)
    if client is None:
        await worker.run_until_signalled()
        return
    async with client:
        await worker.run_until_signalled(client)


def _stop_with_parent(worker: Worker) -> None:
    """Drain the worker when the parent process ends, which closes our standard input."""
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        worker.stop()

    loop.add_reader(sys.stdin.fileno(), on_end)


def _client(endpoint: Endpoint, worker: Worker) -> AsyncClient | None:
    """Return a client of the data folder; None for a server, to which the worker connects itself and retries."""
    if endpoint.data is not None:
        from fairlane.client import AsyncClient

        return AsyncClient.embedded(endpoint.store)
    worker.use_server(endpoint.server, api_key=endpoint.api_key, tls=endpoint.tls())
    return None


def _supervise(endpoint: Endpoint, count: int, *, is_reloading: bool = False) -> int:
    """Run this command in child processes and restart those that crash, or all of them when the sources change."""
    from fairlane.worker.processes import Processes
    from fairlane.worker.sources import changes

    command = [sys.executable, "-m", "fairlane", *sys.argv[1:], "--processes", "1"]
    keys = {} if endpoint.api_key is None else {"FAIRLANE_API_KEY": endpoint.api_key}
    environment = os.environ | {_CHILD: "1", "FAIRLANE_SERVER": endpoint.server} | keys

    if is_reloading:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode of a change within the same second would be stale

    async def supervise() -> int:
        found = changes(Path.cwd()) if is_reloading else None
        return await Processes(command, count, environment=environment, changes=found).run()

    return asyncio.run(supervise())
