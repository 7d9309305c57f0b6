"""OpenTelemetry is imported only where it is used, and a missing extra is named."""

from __future__ import annotations

import subprocess
import sys

import pytest


def output_of(script: str) -> str:
    """Return the output of a script."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "script",
    [
        "from fairlane.client import Client\nwith Client.embedded() as c: c.create_queue('q'); c.enqueue('q', b'x')",
        "import fairlane.worker",
        "import fairlane.server.run, fairlane.server.interfaces.http",
    ],
)
def test_nothing_is_imported_without_tracing(script: str) -> None:
    """A producer, a worker and a server without an endpoint do not import it."""
    assert (
        output_of(f"import sys\n{script}\nprint([n for n in sys.modules if n.startswith('opentelemetry')])") == "[]\n"
    )


def test_a_server_without_the_extra_names_it() -> None:
    """The server does not start with an endpoint it cannot export to."""
    script = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from fairlane.server.__main__ import main\n"
        "print(main(['--data', ':memory:', '--port', '0', '--otlp-endpoint', 'http://localhost:4318']))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"
    assert "otlp_endpoint is set, but: Tracing needs OpenTelemetry; install fairlane[otel]." in result.stderr
