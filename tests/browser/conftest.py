"""A real browser and real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.browser.viewer import Served, Viewer, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")  # while it runs, tests in this thread cannot run an event loop of their own
def browser() -> Iterator[Browser]:
    """Start Chromium; skip the test if it is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: install fairlane[dev]")
    chromium = which("chromium")
    if chromium is None:
        pytest.skip("needs the command chromium; on Debian: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium)
        yield started
        started.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server without authentication."""
    data: Path = tmp_path_factory.mktemp("data")
    with served(data) as process:
        yield process


@pytest.fixture
def viewer(browser: Browser) -> Iterator[Viewer]:
    """Open a tab, and check at the end that nothing failed in it."""
    looking = Viewer(browser)
    yield looking
    looking.close()
