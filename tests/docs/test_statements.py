"""The page of statements agrees with their tests, and leaves none out."""

from __future__ import annotations

from tests.kit.statements import LAST, PAGE, page, statements


def test_every_statement_has_a_test() -> None:
    """Each of the 300 statements has at least one test, whose docstring says what Fairlane does."""
    rows = statements()
    assert sorted({row.number for row in rows}) == list(range(1, LAST + 1))
    assert [row.number for row in rows if not row.text] == []


def test_the_page_is_current() -> None:
    """The page has been made from the tests; otherwise run ``python -m tests.kit.statements``."""
    assert PAGE.read_text(encoding="utf-8") == page(statements())
