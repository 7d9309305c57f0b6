"""Compilation of functions over arrays by numba, where it is installed.

The functions allocate nothing and keep no array, so they are compiled without numba's reference counts, which would
take ten times as long as the rest: a call passes two dozen arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., object])


def _numba() -> tuple[Any, type[Exception]]:
    """Return numba's decorator and its error. Without numba functions are interpreted: slower than the kernel."""
    try:
        return import_module("numba").njit, import_module("numba.core.errors").NumbaError
    except ImportError:
        return None, ArithmeticError


njit, CompilationFailed = _numba()
_OPTIONS: Final[dict[str, Any]] = {"error_model": "numpy", "_nrt": False}


def compiled(function: F) -> F:
    """Return a function that other compiled functions call; as it is, if numba is not installed."""
    if njit is None:
        return function
    found: F = njit(**_OPTIONS)(function)
    return found


def entry(function: F) -> F:
    """Return a compiled function that is called from outside. What numba compiled is kept on disk, if it can be.

    Numba notices that the file of an entry has changed, and not those of the functions that it calls. An installation
    renews all files. After an edit, remove ``__pycache__`` or set ``NUMBA_CACHE_DIR``.
    """
    if njit is None:
        return function
    found: F
    try:
        found = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is no folder that it may write to
        found = njit(**_OPTIONS)(function)
    return found
