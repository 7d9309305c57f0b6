"""Azure Blob Storage for tests: Microsoft's emulator Azurite, which npm installs once, outside of the project."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

from tests.kit.servers.stores import ServerMissing
from tests.kit.waiting import wait_until

_VERSION: Final = "3.37.0"
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of every Azurite, from its documentation. It protects nothing."""
_API: Final = "2021-08-06"
_INSTALL_S: Final = 300


class AzuriteServer:
    """Azurite on loopback, with its well-known account."""

    def __init__(self) -> None:
        """Install the server if necessary, and choose its files and its port.

        Raises:
            ServerMissing: npm is missing, or can't install it.
        """
        self._program = _installed()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-azure-"))
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]

    @property
    def endpoint(self) -> str:
        """The URL of the account."""
        return f"http://127.0.0.1:{self._port}/{_ACCOUNT}"

    @property
    def credentials(self) -> dict[str, str]:
        """The environment in which clients find the account and its key."""
        return {"AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _KEY}

    def url(self, container: str, prefix: str) -> str:
        """Return the URL of a store in a container."""
        return f"az://{container}/{prefix}?endpoint={self.endpoint}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [str(self._program), "--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        command += ["--location", str(self.folder), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._answers, what="Azurite answers")

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"Azurite ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            self.make_container("fairlane-ready")
        except OSError:
            return False
        return True

    def make_container(self, name: str) -> None:
        """Make a container, unless it exists."""
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": _API}
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_API}\n"
        signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
        headers |= {"authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"}
        url = f"{self.endpoint}/{name}?restype=container"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method="PUT"), timeout=5):
                return
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise

    def discard(self) -> None:
        """Kill the server and remove its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
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


def _installed() -> Path:
    """Return the program, installed in the user's cache by the first run that needs it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlane"
    program = cache / f"azurite-{_VERSION}" / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        _install(cache, program.parents[2].name)
    return program


def _install(cache: Path, name: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ServerMissing("Azurite needs npm, which is not installed; on Debian: apt-get install npm.")
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
    command = [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", f"azurite@{_VERSION}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_S)
        with contextlib.suppress(OSError):  # another process was faster
            folder.rename(cache / name)
    except (subprocess.SubprocessError, OSError) as error:
        raise ServerMissing(f"npm can't install azurite@{_VERSION}: {error}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
