"""beanstalkd with a sync after every job, as a baseline for the server, where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.meter import Measured, Meter


def is_installed() -> bool:
    return shutil.which("beanstalkd") is not None


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    """Start a server on a fresh folder. Yields its port and the id of its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", folder, "-f", "0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            yield port, process.pid
            process.terminate()


def _connected(port: int) -> socket.socket:
    for _ in range(200):
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)  # noqa: TID251 - there is nothing to wait for but the listener
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise TimeoutError("beanstalkd does not answer.")


def put_one_at_a_time(port: int, process: int, payload: bytes, count: int) -> Measured:
    """Put jobs one after the other on a bare socket; a client library would only add to this."""
    request = b"put 1024 0 60 %d\r\n%b\r\n" % (len(payload), payload)
    meter = Meter(process)
    with _connected(port) as connection, meter:
        for _ in range(count):
            connection.sendall(request)
            assert connection.recv(64).startswith(b"INSERTED")
    return meter.measured(count)
