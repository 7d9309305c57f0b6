"""The Plotly script from the plotly package, which draws the charts of reports and dashboard."""

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
    """The script, plain and compressed, with an ETag of its content."""

    data: bytes
    gzipped: bytes
    etag: str


def _preface(shipped: bytes) -> bytes:
    """Return code to run before the script, so that it adds no styles for maps to the page.

    The page's Content-Security-Policy forbids inline styles and would log an error. Plotly skips a style if an element
    with its id exists, so this code creates such elements.
    """
    marks = b"".join(
        b'document.head.append(Object.assign(document.createElement("meta"),{id:"%s"}));' % found
        for found in sorted(set(_STYLES.findall(shipped)))
    )
    return marks + b"\n"


@cache
def plotly_script() -> Script | None:
    """Return the script; None if the package is not installed. The first call takes most of a second."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations)), "package_data", "plotly.min.js")
    if not path.is_file():
        return None
    shipped = path.read_bytes()
    data = _preface(shipped) + shipped
    return Script(data, gzip.compress(data, _QUICK, mtime=0), f'"{sha256(data).hexdigest()[:16]}"')
