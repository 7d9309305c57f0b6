"""Whether the kernel is compiled, and what its compiler needs to know.

The modules of the kernel are ordinary Python and compile as they are with mypyc; see ``tools/compile_kernel.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr

    from fairlane.scheduler.token_bucket import Watcher
else:

    def mypyc_attr(**_attributes: bool) -> Callable[[type], type]:
        """Return a decorator that changes nothing: the attributes are for the compiler."""
        return lambda decorated: decorated


__all__ = ["Life", "Watch", "is_compiled", "mypyc_attr"]


class Life:
    """Lives as long as its kernel. Others hold weak references to it, which a compiled object does not support."""

    __slots__ = ("__weakref__",)


class Watch:
    """A watcher of throttles, which ends with it. The table of throttles refers to it weakly."""

    __slots__ = ("__weakref__", "watcher")

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher


def is_compiled() -> bool:
    """Return whether the kernel in use is compiled, and not plain Python."""
    spec = find_spec("fairlane.scheduler.kernel")
    return spec is not None and not (spec.origin or ".py").endswith(".py")
