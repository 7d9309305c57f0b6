"""The command ``doctor``: what is wrong with a server or a data folder, in one table."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import click

from fairlane.cli.errors import REFUSED, Quit, known_remedy
from fairlane.cli.formatting import message_count, size
from fairlane.cli.interaction import stoppable
from fairlane.cli.output import Table
from fairlane.cli.session import Endpoint, Session, pass_session
from fairlane.model.views import QueueView
from fairlane.scheduler.compiled import is_compiled

State = Literal["ok", "warning", "wrong"]
_DAYS_LEFT_MIN: Final = 14
_CLOCK_S_MAX: Final = 5
_NEARLY_FULL: Final = 0.8
_DISK_RESERVES: Final = 4
_FILES_MIN: Final = 1_024


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    state: State
    found: str


@click.command(name="doctor")
@pass_session
def doctor_command(session: Session) -> None:
    """Check a server or a data folder, and report what is wrong.

    For a server: whether it answers, its certificate, clock, disk, file descriptors, failed commits, the limits on all
    queues together, and queues that are paused or near a limit. With --data: the store, which is read completely, its
    disk, the limit of open files, and whether the scheduler is compiled. Exit code 1 if something is wrong. The API key
    needs the right observe on all queues.
    """
    with stoppable():
        endpoint = session.endpoint
        findings = [*(_of_folder(endpoint) if endpoint.is_embedded else _of_server(session))]
    rows = [[each.check, each.state, each.found] for each in findings]
    session.answer(findings, [Table(["check", "state", "found"], rows)])
    if any(each.state == "wrong" for each in findings):
        raise Quit(REFUSED)


def _of_folder(endpoint: Endpoint) -> Iterator[Finding]:
    from fairlane.maintenance import check_store
    from fairlane.server.descriptors import raise_limit

    report = check_store(str(endpoint.store))
    found = " ".join(report.faults) or f"whole, {message_count(report.messages)}"
    yield Finding("store", "ok" if report.is_whole else "wrong", found)
    disk = shutil.disk_usage(str(endpoint.store))
    is_short = disk.free < disk.total / 20
    yield Finding("disk", "warning" if is_short else "ok", f"{size(disk.free)} of {size(disk.total)} free")
    if (files := raise_limit(0)) is not None:
        yield Finding("descriptors", "warning" if files < _FILES_MIN else "ok", f"up to {files} files may be open")
    yield Finding("scheduler", "ok", "compiled" if is_compiled() else "plain Python")


def _of_server(session: Session) -> Iterator[Finding]:
    endpoint = session.endpoint
    certificates = [*_certificates(endpoint)]
    if any(each.state == "wrong" for each in certificates):
        yield from certificates  # no client would get an answer
        return
    with session.broker() as broker:
        queues = broker.queues()
    yield Finding("server", "ok", f"answers at {endpoint.server}, {len(queues)} queues")
    yield from certificates
    for address in endpoint.server.split(","):
        try:
            text, at = _metrics(endpoint, address)
        except OSError as error:  # the other servers are checked nevertheless
            yield Finding("server", "wrong", f"{address}: {_cause(error)}")
            continue
        if at is not None:
            yield clock_finding((datetime.now(UTC) - at).total_seconds())
        yield from metric_findings(samples_of(text))
    yield from queue_findings(queues)


def _metrics(endpoint: Endpoint, address: str) -> tuple[str, datetime | None]:
    """Return the metrics of a server as text, and the time that it says it is."""
    url = f"{address.replace('ws', 'http', 1) if address.startswith('ws') else address}/metrics"
    headers = {} if endpoint.api_key is None else {"Authorization": f"Bearer {endpoint.api_key}"}
    with urlopen(Request(url, headers=headers), timeout=endpoint.timeout_s, context=endpoint.tls()) as answer:  # noqa: S310 - the user's server
        date = answer.headers["date"]
        return answer.read().decode(), None if date is None else parsedate_to_datetime(date)


def _cause(error: OSError) -> str:
    """Return why a server gave no metrics, and release its answer if it was a refusal."""
    if isinstance(error, HTTPError):
        error.close()
        return str(error)
    return str(error.reason if isinstance(error, URLError) else error)


def _certificates(endpoint: Endpoint) -> Iterator[Finding]:
    """Yield what the certificate of each server is worth; a server that can't be reached is reported by the client."""
    for address in endpoint.server.split(","):
        if urlsplit(address).scheme in ("https", "wss"):
            with suppress(OSError):
                try:
                    yield certificate_finding(_expiry(endpoint, address), datetime.now(UTC))
                except ssl.SSLCertVerificationError as error:
                    told = f"{urlsplit(address).netloc}: {error.verify_message.rstrip('.')}."
                    yield Finding("certificate", "wrong", f"{told} {known_remedy(str(error)) or ''}".rstrip())


def _expiry(endpoint: Endpoint, address: str) -> datetime:
    """Return when the certificate of a server expires."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 443
    context = endpoint.tls() or ssl.create_default_context()
    with (
        socket.create_connection((host, port), timeout=endpoint.timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)


def samples_of(text: str) -> Mapping[str, float]:
    """Return the metrics without labels in a text of Prometheus's format."""
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#") and "{" not in line)
    return {name: float(value) for name, _, value in pairs if name}


def certificate_finding(expires: datetime, now: datetime) -> Finding:
    """Return how long a certificate is valid."""
    days = (expires - now).days
    state: State = "ok" if days >= _DAYS_LEFT_MIN else "warning" if days >= 0 else "wrong"
    return Finding("certificate", state, f"expires {expires:%Y-%m-%d}, in {days} days")


def clock_finding(ahead_s: float) -> Finding:
    """Return how far the clock of this machine is ahead of the server's, which tells whole seconds."""
    is_far = abs(ahead_s) > _CLOCK_S_MAX
    return Finding("clock", "warning" if is_far else "ok", f"this machine is {ahead_s:+.0f} s from the server")


def metric_findings(values: Mapping[str, float]) -> Iterator[Finding]:
    """Yield what the metrics of a server say about its disk, descriptors, commits and bugs."""
    if (free := values.get("fairlane_disk_free_bytes")) is not None:
        reserve = values["fairlane_disk_reserve_bytes"]
        state: State = "wrong" if free < reserve else "warning" if free < _DISK_RESERVES * reserve else "ok"
        yield Finding("disk", state, f"{size(int(free))} free; enqueues are refused below {size(int(reserve))}")
    if "process_open_fds" in values and "process_max_fds" in values:
        used, most = values["process_open_fds"], values["process_max_fds"]
        is_near = used > _NEARLY_FULL * most
        yield Finding("descriptors", "warning" if is_near else "ok", f"{used:.0f} of {most:.0f} file descriptors open")
    yield from _limit_findings(values)
    failed = values.get("fairlane_commit_failures_total", 0)
    yield Finding("commits", "warning" if failed else "ok", f"{failed:.0f} failed since the server started")
    bugs = values.get("fairlane_internal_errors_total", 0)
    yield Finding("internal errors", "warning" if bugs else "ok", f"{bugs:.0f} since the server started; see its log")


def _limit_findings(values: Mapping[str, float]) -> Iterator[Finding]:
    for limit in ("waiting_max", "waiting_bytes_max"):
        if (used := values.get(f"fairlane_{limit.removesuffix('_max')}_used_ratio")) is not None:
            state: State = "warning" if used >= _NEARLY_FULL else "ok"
            yield Finding(limit, state, f"{used:.0%} used by all queues together")


def queue_findings(queues: list[QueueView]) -> Iterator[Finding]:
    """Yield the queues that have nearly as many messages or bytes as they may, or have messages and are paused."""
    for view in queues:
        count, policy = view.waiting + view.leased + view.staged, view.policy
        if policy.waiting_max is not None and count >= _NEARLY_FULL * policy.waiting_max:
            yield Finding(f"queue {view.name}", "warning", f"has {count} messages of waiting_max {policy.waiting_max}")
        if policy.waiting_bytes_max is not None and view.size >= _NEARLY_FULL * policy.waiting_bytes_max:
            found = f"has {size(view.size)} of waiting_bytes_max {size(policy.waiting_bytes_max)}"
            yield Finding(f"queue {view.name}", "warning", found)
        if view.is_paused and view.waiting:
            yield Finding(f"queue {view.name}", "warning", f"paused, with {message_count(view.waiting)} waiting")
