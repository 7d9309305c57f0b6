"""What a user can meet is in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from fairlane import errors, scheduler
from fairlane.assembly import Broker, BrokerConfig, QueuePolicy, Settings
from fairlane.errors import FairlaneError
from fairlane.journal.events import KINDS
from fairlane.model import limits
from fairlane.scheduler import KeyPolicy, Options, TaskOptions

DOCS = Path(__file__).parents[2] / "docs"
SCHEDULER_PAGE = (DOCS / "reference" / "scheduler.md").read_text()
ERRORS_PAGE = (DOCS / "reference" / "errors.md").read_text()
BROKER_PAGE = (DOCS / "reference" / "broker.md").read_text()
POLICY_PAGE = (DOCS / "reference" / "policy.md").read_text()
LIMITS_PAGE = (DOCS / "reference" / "limits.md").read_text()
JOURNAL_PAGE = (DOCS / "reference" / "journal.md").read_text()
LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairlaneError) and hasattr(kind, "code")
]


@pytest.mark.parametrize("kind", LEAVES)
def test_every_error_is_in_the_reference(kind: type[FairlaneError]) -> None:
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


@pytest.mark.parametrize("name", QueuePolicy.__struct_fields__)
def test_every_field_of_a_policy_is_in_the_reference(name: str) -> None:
    """The reference has a row for each field of a queue's policy."""
    assert f"| `{name}` |" in POLICY_PAGE


@pytest.mark.parametrize("name", [name for kind in (BrokerConfig, Settings) for name in kind.__dataclass_fields__])
def test_every_setting_of_a_broker_is_in_the_reference(name: str) -> None:
    """The reference has a row for each setting a broker is opened with."""
    assert f"| `{name}` |" in BROKER_PAGE


@pytest.mark.parametrize("name", [name for name in dir(Broker) if not name.startswith("_")])
def test_every_verb_is_in_the_reference(name: str) -> None:
    """The reference names each verb of the broker."""
    assert f"`{name}(" in BROKER_PAGE or f"`{name}`" in BROKER_PAGE


@pytest.mark.parametrize("name", [name for name in vars(limits) if name.endswith("_MAX")])
def test_every_limit_is_in_the_reference(name: str) -> None:
    """The reference has a row for each limit."""
    assert f"| `{name}` |" in LIMITS_PAGE


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_is_in_the_reference(kind: str) -> None:
    """The reference has a row for each kind of event in the journal."""
    assert f"| `{kind}` |" in JOURNAL_PAGE
