"""Declared keys: what a policy's sources make of headers."""

from __future__ import annotations

import pytest

from fairlane.core.sources import Declared
from fairlane.model.limits import KEY_LENGTH_MAX, WEIGHT_MAX
from fairlane.model.policy import QueuePolicy

HEADERS = {"tenant": "acme", "app": "mobile", "weight": "7", "priority": " High ", "endpoint": "pay"}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("header:tenant", "acme"),
        ("header:missing", None),
        (("header:tenant", "header:app"), ("acme", "mobile")),
        (("header:tenant", "header:missing"), "acme"),
        (("header:missing", "header:app"), None),
        ("t:{tenant}", "t:acme"),
        ("{tenant}-{app}", "acme-mobile"),
        ("{tenant}-{missing}", None),
        ("everybody", "everybody"),
    ],
)
def test_a_fairness_key_is_made_of_headers(source: str | tuple[str, ...], key: str | tuple[str, ...] | None) -> None:
    """A header, a path of headers, a text with placeholders, or a plain text; missing headers give nothing."""
    assert Declared(QueuePolicy(fairness_key_from=source)).key(HEADERS) == key


def test_a_long_header_makes_a_key_of_allowed_length() -> None:
    """A header may be longer than a key: the key is cut, so the message is not lost."""
    key = Declared(QueuePolicy(fairness_key_from="header:tenant")).key({"tenant": "x" * (KEY_LENGTH_MAX + 1)})
    assert key == "x" * KEY_LENGTH_MAX


@pytest.mark.parametrize(
    ("text", "weight"), [("7", 7), ("0", 1), ("-3", 1), ("999999999", WEIGHT_MAX), ("many", None), ("", None)]
)
def test_a_weight_is_brought_within_its_limits(text: str, weight: int | None) -> None:
    """No header buys a tenant more than the largest weight, and nonsense counts as not said."""
    assert Declared(QueuePolicy(weight_from="header:weight")).weight({"weight": text}) == weight


def test_priorities_are_named_in_any_case() -> None:
    """A priority is high, normal or low, whatever the case, and anything else is not said."""
    declared = Declared(QueuePolicy(priority_from="header:priority"))
    assert declared.priority(HEADERS) == 0
    assert declared.priority({"priority": "urgent"}) is None


def test_only_throttles_whose_headers_are_there_count() -> None:
    """A throttle that needs a missing header does not apply."""
    declared = Declared(QueuePolicy(throttles_from=("api:{endpoint}", "region:{region}", "all")))
    assert declared.throttles(HEADERS) == ["api:pay", "all"]


def test_braces_in_a_header_are_only_text() -> None:
    """What a header holds is not taken for a placeholder itself."""
    assert Declared(QueuePolicy(fairness_key_from="t:{tenant}")).key({"tenant": "{app}", "app": "x"}) == "t:{app}"
