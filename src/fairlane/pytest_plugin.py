"""Fixtures for pytest: ``fairlane`` runs the jobs of your app in a test.

pytest loads this module in every environment that has Fairlane, so it imports nothing heavy before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fairlane.tasks.app import App
    from fairlane.testing.harness import AppHarness

_OPTION = "fairlane_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the app."""
    parser.addini(_OPTION, "The app whose jobs the fixture fairlane runs, as MODULE:APP.", default="")


@pytest.fixture
def fairlane_app(request: pytest.FixtureRequest) -> App:
    """Return the app under test: of the ini option ``fairlane_app``, or what your own fixture of this name returns."""
    module, _, name = str(request.config.getini(_OPTION)).partition(":")
    if not name:
        raise pytest.UsageError(f"Set {_OPTION} = MODULE:APP in pytest's configuration, or define a fixture {_OPTION}.")
    app: App = getattr(import_module(module), name)
    return app


@pytest.fixture
def fairlane(fairlane_app: App) -> Iterator[AppHarness]:
    """Yield the app on a broker in memory and virtual time: send jobs, then ``fairlane.run()``."""
    with fairlane_app.testing() as harness:
        yield harness
