"""Calls in the reference of client and broker can be made as they are shown there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from fairlane.assembly import Broker
from fairlane.client import Client
from fairlane.client.message import Message

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CALL = re.compile(r"`(\w+)\(([^`]*)\)`")
OWNERS: dict[str, list[type]] = {"client.md": [Client, Message], "broker.md": [Broker]}


def shown(page: str) -> list[tuple[str, str]]:
    """Return the calls of a page that show their parameters."""
    return [call for call in CALL.findall((REFERENCE / page).read_text()) if call[1] not in ("", "...")]


CASES = [
    (page, name, parameters)
    for page, owners in OWNERS.items()
    for name, parameters in shown(page)
    if any(hasattr(owner, name) for owner in owners)
]


@pytest.mark.parametrize(("page", "name", "parameters"), CASES, ids=lambda each: str(each)[:40])
def test_a_call_is_shown_as_it_can_be_made(page: str, name: str, parameters: str) -> None:
    """Positional and keyword-only parameters are where the page has them, in its order and with its defaults."""
    owners = [owner for owner in OWNERS[page] if hasattr(owner, name)]
    assert any(not differences(parameters, getattr(owner, name)) for owner in owners), [
        differences(parameters, getattr(owner, name)) for owner in owners
    ]


def differences(parameters: str, function: Any) -> list[str]:
    """Return what a page has otherwise than the function."""
    tree = ast.parse(f"def f({parameters}): ...").body[0]
    assert isinstance(tree, ast.FunctionDef)
    known = inspect.signature(function).parameters
    positional = tree.args.args
    first_default = len(positional) - len(tree.args.defaults)
    defaults = [None] * first_default + list(tree.args.defaults)
    told = [
        *[(each.arg, default, False) for each, default in zip(positional, defaults, strict=True)],
        *[(each.arg, default, True) for each, default in zip(tree.args.kwonlyargs, tree.args.kw_defaults, strict=True)],
    ]
    wrong = [f"{name}: no such parameter" for name, _, _ in told if name not in known]
    for name, default, is_keyword in told:
        if name in known:
            wrong += list(_wrong(name, default, known[name], is_keyword=is_keyword))
    return wrong


def _wrong(name: str, default: ast.expr | None, known: inspect.Parameter, *, is_keyword: bool) -> list[str]:
    is_only_keyword = known.kind is inspect.Parameter.KEYWORD_ONLY
    found = [f"{name}: keyword-only is {is_only_keyword}"] if is_keyword != is_only_keyword else []
    if default is None:
        return found if known.default is inspect.Parameter.empty else [*found, f"{name}: is optional"]
    if isinstance(default, ast.Constant) and default.value is not ... and default.value != known.default:
        return [*found, f"{name}: default is {known.default!r}"]
    return found


def test_the_pages_show_calls() -> None:
    """There are enough of them that a change of the layout cannot empty this test."""
    assert len(CASES) > 60
