"""The files of a store as one archive."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def packed(folder: Path) -> bytes:
    """Return the files of a store as an archive, without names, times and logs of this machine."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.name.startswith("LOG") and file.name != "LOCK":
                entry = tarfile.TarInfo(str(file.relative_to(folder)))
                entry.size = file.stat().st_size
                with file.open("rb") as content:
                    archive.addfile(entry, content)
    return buffer.getvalue()
