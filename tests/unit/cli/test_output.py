"""Tests of the output: tables for people, JSON for programs."""

from __future__ import annotations

import io
import sys

import pytest

from fairlane.cli import output, queues, terminal
from fairlane.cli.formatting import as_json, excerpt, instant, printable, size
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table, plain
from fairlane.cli.tables import shares_of
from fairlane.model.policy import QueuePolicy
from fairlane.model.views import KeyView, QueueView
from tests.unit.cli.shell import Shell

TABLE = Table(["name", "count"], [["a", "1"], ["bcdef", "100"]], title="Things", numbers=frozenset({"count"}))


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_plain_table() -> None:
    """Columns are aligned, numbers to the right, and no line ends with blanks."""
    assert plain(TABLE) == "Things\nNAME   COUNT\na          1\nbcdef    100"
    assert plain(Table([], [["key", "value"], ["k", "v"]])) == "key  value\nk    v"


def test_a_table_on_a_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal table has the same cells, and text that looks like markup stays text."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    shell.broker.enqueue("jobs", b"[red]not red[/red]", fairness_key="acme")
    out = shell.ok("peek", "jobs").out
    assert "[red]not" in out
    assert "acme" in out
    assert "visibility_timeout_ms" in shell.ok("queue", "inspect", "jobs").out


def test_watching_on_a_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table replaces the one before, and the last one stays."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setattr(queues, "is_terminal", lambda: True)
    out = shell.ok("top", "--rounds", "2", "--interval", "1ms").out
    assert "jobs.dlq" in out


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar appears only if standard error is a terminal."""
    for stream, is_shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("Working") as bar:
            bar.set(3, 10)
        assert ("Working" in stream.getvalue()) == is_shown


def test_json_of_bytes() -> None:
    """UTF-8 bytes become text; others become base64 under another name."""
    assert as_json({"payload": b"h\xc3\xa9", "state": b"\xff", "more": [{"x": b"y"}], "keys": ("a", "b")}) == (
        '{"payload": "hé", "state_base64": "/w==", "more": [{"x": "y"}], "keys": ["a", "b"]}'
    )


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, ""),
        (b"", ""),
        (b"a\tb\x1b", "a\\tb\\x1b"),
        (b"x" * 61, "x" * 60 + "…"),
        ("ü".encode() * 300, "ü" * 60 + "…"),
    ],
)
def test_excerpts(payload: bytes | None, text: str) -> None:
    """An excerpt is the beginning of a payload, with escapes for unprintable characters."""
    assert excerpt(payload) == text
    assert printable(text) == text


def test_instants_and_sizes() -> None:
    """Instants are UTC, sizes have units."""
    assert (instant(None), instant(0)) == ("-", "1970-01-01 00:00:00")
    assert [size(count) for count in (5, 2_048, 5 * 1024**2, 3 * 1024**4)] == ["5 B", "2.0 KiB", "5.0 MiB", "3.0 TiB"]


def view_of(keys: dict[str | tuple[str, ...], int], *, active: int, policy: QueuePolicy | None = None) -> QueueView:
    """Return a queue with these keys and weights."""
    shown = tuple(
        KeyView(key=key, messages=1, leased=0, weight=weight, cap=None, deficit=0, is_paused=False)
        for key, weight in keys.items()
    )
    return QueueView(
        name="q",
        policy=policy or QueuePolicy(),
        created_ms=0,
        is_paused=False,
        paused_keys=(),
        waiting=len(keys),
        leased=0,
        size=0,
        dead=0,
        oldest_ms=None,
        active_keys=active,
        waiters=0,
        consumers=0,
        keys=shown,
    )


def test_shares_by_weight() -> None:
    """Keys share by weight, and keys that are not shown count, too."""
    assert shares_of(view_of({"a": 3, "b": 1}, active=2)) == [0.75, 0.25]
    assert shares_of(view_of({"a": 3, "b": 1}, active=6)) == [0.375, 0.125]


def test_shares_of_paths() -> None:
    """The children of a key divide its share."""
    view = view_of(
        {("acme", "web"): 1, ("acme", "app"): 3, "bakery": 2}, active=3, policy=QueuePolicy(weights={"acme": 6})
    )
    assert shares_of(view) == [0.75 / 4, 0.75 * 3 / 4, 0.25]


def test_a_bar_needs_no_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar shows its title while the total is unknown."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with terminal.bar("Working") as bar:
        bar.set(1, None)
    assert "Working" in stream.getvalue()
