"""The script that draws charts, as the package plotly ships it: reports and the dashboard use the same."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fairlead.dashboard.assets import PREFIX

PLOTLY: Final = PREFIX + "plotly.js"
KIND: Final = "text/javascript; charset=utf-8"
_QUICK: Final = 5


@dataclass(frozen=True, slots=True)
class Script:
    """The script as it is and compressed, and a tag that names its content."""

    data: bytes
    gzipped: bytes
    etag: str


@cache
def plotly_script() -> Script | None:
    """Return the script; None where the package is not installed. The first call takes a good part of a second."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations)), "package_data", "plotly.min.js")
    if not path.is_file():
        return None
    data = path.read_bytes()
    return Script(data, gzip.compress(data, _QUICK, mtime=0), f'"{sha256(data).hexdigest()[:16]}"')
