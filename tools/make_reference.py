"""Write the generated parts of the reference pages.

Each part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` in its page; the text around it is written by
hand. With ``--check`` the tool changes nothing and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

import grpc

from fairlane import errors
from fairlane.errors import FairlaneError, RequestError, UnavailableError
from fairlane.wire.errors import HTTP_STATUS, grpc_status

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
_GRPC_NAMES = {status.value[0]: status.name for status in grpc.StatusCode}


def _leaves(branch: type[FairlaneError]) -> list[type[FairlaneError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, branch)]
    return [kind for kind in kinds if "code" in vars(kind)]


def _summary(kind: type[FairlaneError]) -> str:
    """Return the first paragraph of a class's docstring on one line."""
    return inspect.getdoc(kind).split("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr] # a test wants docstrings


def _error_table(kinds: list[type[FairlaneError]]) -> str:
    lines = ["| error | code | HTTP | gRPC | meaning | remedy |", "|---|---|---|---|---|---|"]
    for kind in kinds:
        http, name = HTTP_STATUS[kind.code], _GRPC_NAMES[grpc_status(kind.code)]
        lines.append(f"| `{kind.__name__}` | `{kind.code}` | {http} | {name} | {_summary(kind)} | {kind.remedy} |")
    return "\n".join(lines)


def request_errors() -> str:
    """Return the table of the errors that a caller can correct, bugs included."""
    return _error_table([*_leaves(RequestError), errors.InternalError])


def unavailable_errors() -> str:
    """Return the table of the errors that may go away by themselves."""
    return _error_table(_leaves(UnavailableError))


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "request errors": ("errors.md", request_errors),
    "unavailable errors": ("errors.md", unavailable_errors),
}
"""For each generated part its page and the function that returns its text."""


def with_part(page: str, name: str, text: str) -> str:
    """Return a page with the text of one generated part replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _match: f"{begin}\n\n{text}\n\n{end}", page)


def main() -> int:
    """Write the parts, or check them."""
    stale = 0
    for name, (file, make) in PARTS.items():
        path = REFERENCE / file
        page = path.read_text(encoding="utf-8")
        made = with_part(page, name, make())
        if made == page:
            continue
        if "--check" in sys.argv:
            print(f'docs/reference/{file}: the part "{name}" is out of date; run tools/make_reference.py.')
            stale = 1
        else:
            path.write_text(made, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
