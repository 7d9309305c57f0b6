"""The served OpenAPI document against the server that serves it: requests drawn from it, good and bad ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks

from fairlane.server.openapi import description

from .server_process import HttpClient, ServerProcess, serving

ENDLESS = ("/v1/queue/subscribe", "/v1/queue/subscribeWithState", "/v1/queue/watch", "/v1/live")
"""What answers for as long as somebody listens."""
EXAMPLES = 15
CHECKS: Any = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
REFUSALS = ((400, "invalid_argument"), (413, "request_too_large"))
"""What bad requests are refused with; 413 if a list is so long that the body is not decoded."""
CONFIG = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}})
"""The library does not expect 413."""
SETTINGS = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # to shrink a failure takes minutes, and a seed repeats it as it is
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve, and let nobody wait for long."""
    data: Path = tmp_path_factory.mktemp("data")
    with serving(data, "--wait-ms-max", "20", "--durability", "os") as process:
        yield process


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[HttpClient]:
    """Give a client."""
    with server.http() as client:
        yield client


@pytest.fixture(scope="module")
def document(server: ServerProcess) -> Any:
    """Read what the server says of itself."""
    return schemathesis.openapi.from_url(f"{server.scheme}://{server.address}/openapi.json", config=CONFIG)


def operations() -> Iterator[Any]:
    """Return every operation that ends, with each way to ask it: well, and badly where that can be done."""
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            if path not in ENDLESS:
                yield path, method, GenerationMode.POSITIVE
                if "requestBody" in operation or any(each["in"] == "query" for each in operation["parameters"]):
                    yield path, method, GenerationMode.NEGATIVE


@pytest.mark.parametrize(("path", "method", "mode"), list(operations()))
def test_answers_are_as_they_are_described(
    document: Any, http: HttpClient, path: str, method: str, mode: GenerationMode
) -> None:
    """No fault of ours, only described statuses and shapes, and nothing accepted that the document forbids."""

    @SETTINGS
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if case.media_type is not None:
            case.media_type = "application/json"
        http.post("/queues/create", json={"queue": "orders"})
        case.call_and_validate(checks=CHECKS)
        if isinstance(case.body, dict):
            if isinstance(case.body.get("queue"), str):
                case.body["queue"] = "orders"
                case.call_and_validate(checks=CHECKS)
            refused = http.post(path.removeprefix("/v1"), json=case.body | {"surprise": 1})
            assert (refused.status_code, refused.json()["error"]["code"]) in REFUSALS

    check()
