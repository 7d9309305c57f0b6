"""The names that a program imports from ``fairlane`` itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fairlane
from fairlane import assembly, client, scheduler, worker

HEAVY = ("asyncio", "click", "grpc", "lupa", "msgspec", "pyarrow", "pyspark", "rocksdict", "uvicorn", "websockets")
STUB = Path(fairlane.__file__).with_suffix(".pyi")


def loaded_after(statement: str) -> list[str]:
    """Return the heavy modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_loads_nothing_heavy() -> None:
    """``import fairlane`` loads no dependency and no event loop."""
    assert loaded_after("import fairlane") == []


def test_the_scheduler_loads_no_database() -> None:
    """A program that only wants the scheduler loads neither a store nor a protocol."""
    assert set(loaded_after("from fairlane import Scheduler, KeyPolicy")) <= {"asyncio"}


@pytest.mark.parametrize("name", fairlane.__all__)
def test_every_public_name_resolves(name: str) -> None:
    """Every name in ``__all__`` can be imported."""
    assert getattr(fairlane, name) is not None


def test_public_names_are_those_of_their_packages() -> None:
    """A name at the top is the same object as in the package that defines it."""
    assert fairlane.Client is client.Client
    assert fairlane.Worker is worker.Worker
    assert fairlane.open_broker is assembly.open_broker
    assert fairlane.Scheduler is scheduler.Scheduler


def test_type_checkers_see_the_same_names() -> None:
    """The stub lists exactly the names that exist at run time, each from the same module."""
    imports = {
        alias.name: node.module
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == {**vars(fairlane)["_MODULES"], "errors": "fairlane"}
    assert {*imports, "__version__"} == set(fairlane.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'Cleint'"):
        getattr(fairlane, "Cleint")  # noqa: B009 - a type checker would refuse the plain spelling
