"""OpenTelemetry is for those who use it: nobody else imports it, and who lacks it is told what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


def said(script: str) -> str:
    """Return what a script prints."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "script",
    [
        "from fairlane.client import Client\nwith Client.embedded() as c: c.create_queue('q'); c.enqueue('q', b'x')",
        "import fairlane.worker",
        "import fairlane.server.run, fairlane.server.interfaces.http",
    ],
)
def test_who_does_not_trace_imports_nothing_of_it(script: str) -> None:
    """A producer, a worker and a server without an endpoint do without."""
    assert said(f"import sys\n{script}\nprint([n for n in sys.modules if n.startswith('opentelemetry')])") == "[]\n"


def test_a_server_without_the_extra_says_what_to_install() -> None:
    """An endpoint that nothing could be sent to is refused when the server starts."""
    script = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from fairlane.server.__main__ import main\n"
        "print(main(['--data', ':memory:', '--port', '0', '--otlp-endpoint', 'http://localhost:4318']))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"
    assert "otlp_endpoint is set, but: Sending traces needs OpenTelemetry: install fairlane[otel]." in result.stderr
