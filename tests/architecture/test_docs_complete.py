"""What a user can meet is in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from fairlead import errors, scheduler
from fairlead.errors import FairleadError
from fairlead.scheduler import KeyPolicy, Options, TaskOptions

DOCS = Path(__file__).parents[2] / "docs"
SCHEDULER_PAGE = (DOCS / "reference" / "scheduler.md").read_text()
ERRORS_PAGE = (DOCS / "reference" / "errors.md").read_text()
LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairleadError) and hasattr(kind, "code")
]


@pytest.mark.parametrize("kind", LEAVES)
def test_every_error_is_in_the_reference(kind: type[FairleadError]) -> None:
    """The reference names each error and its code."""
    assert f"| `{kind.__name__}` | `{kind.code}` |" in ERRORS_PAGE


@pytest.mark.parametrize("name", [*get_type_hints(Options), *get_type_hints(TaskOptions), *get_type_hints(KeyPolicy)])
def test_every_option_is_in_the_reference(name: str) -> None:
    """The reference has a row for each option."""
    assert f"| `{name}` |" in SCHEDULER_PAGE


def test_every_public_name_has_a_docstring() -> None:
    """Whatever the scheduler exports says what it is."""
    named = [getattr(scheduler, name) for name in scheduler.__all__ if name != "Key"]
    assert [thing for thing in named if not thing.__doc__] == []
