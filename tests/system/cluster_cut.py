"""A proxy to PostgreSQL that can be cut: data vanishes, and no connection is ever closed."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from typing import Self

from tests.kit.servers.stores import PostgresServer

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 1 << 16


class Cut:
    """A server socket that passes everything on until it is cut."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._folder = tempfile.TemporaryDirectory(prefix="fairlane-cut-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self._folder.name) / _SOCKET))
        self._listener.listen(64)
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._is_cut = threading.Event()

    @property
    def url(self) -> str:
        """The address of the database through the proxy."""
        return self._server.url.replace(str(self._server.folder), self._folder.name)

    def cut(self) -> None:
        """Drop all data from now on."""
        self._is_cut.set()

    def heal(self) -> None:
        """Pass new connections again; connections from before the cut stay dead."""
        sockets, self._sockets = self._sockets, []
        threads, self._threads = self._threads, []
        self._is_cut = threading.Event()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for each in sockets:
            each.close()

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.heal()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            self._sockets += [near, far]
            if not self._is_cut.is_set():
                far.connect(str(self._server.folder / _SOCKET))
            for source, target in ((near, far), (far, near)):
                thread = threading.Thread(target=_pass_on, args=(source, target, self._is_cut), daemon=True)
                self._threads.append(thread)
                thread.start()


def _pass_on(source: socket.socket, target: socket.socket, is_cut: threading.Event) -> None:
    """Pass data on until the end; after a cut swallow it, including the end."""
    try:
        while data := source.recv(_CHUNK):
            if not is_cut.is_set():
                target.sendall(data)
    except OSError:
        pass
    if not is_cut.is_set():
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
