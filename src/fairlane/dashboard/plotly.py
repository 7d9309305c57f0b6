"""The script that draws charts, as the package plotly ships it: reports and the dashboard use the same."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fairlane.dashboard.assets import PREFIX

PLOTLY: Final = PREFIX + "plotly.js"
KIND: Final = "text/javascript; charset=utf-8"
_QUICK: Final = 5
_STYLES: Final = re.compile(rb'if\(!document\.getElementById\("([0-9a-f]{40,})"\)')


@dataclass(frozen=True, slots=True)
class Script:
    """The script as it is and compressed, and a tag that names its content."""

    data: bytes
    gzipped: bytes
    etag: str


def _preface(shipped: bytes) -> bytes:
    """Return what goes before the script, so that it writes no styles for maps into the page.

    The page's policy would refuse them, and say so. It writes each unless there is something with its id.
    """
    marks = b"".join(
        b'document.head.append(Object.assign(document.createElement("meta"),{id:"%s"}));' % found
        for found in sorted(set(_STYLES.findall(shipped)))
    )
    return marks + b"\n"


@cache
def plotly_script() -> Script | None:
    """Return the script; None where the package is not installed. The first call takes a good part of a second."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations)), "package_data", "plotly.min.js")
    if not path.is_file():
        return None
    shipped = path.read_bytes()
    data = _preface(shipped) + shipped
    return Script(data, gzip.compress(data, _QUICK, mtime=0), f'"{sha256(data).hexdigest()[:16]}"')
