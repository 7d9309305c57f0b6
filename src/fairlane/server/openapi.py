"""The OpenAPI description, generated from the table of verbs, so that it always matches what the server does."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from fairlane import __version__
from fairlane.model.message import Delivery
from fairlane.model.views import ClusterView, QueueView
from fairlane.server.interfaces.exchange import JSON, MSGPACK, RAW
from fairlane.server.interfaces.json_messages import JSON_FORMS
from fairlane.server.interfaces.raw_payload import PARAMETERS
from fairlane.server.live import feed
from fairlane.server.routes import history, journal, reports
from fairlane.verbs.config import ConfigValues
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import EnqueueResults, Results
from fairlane.verbs.queues import QueueList
from fairlane.verbs.table import PATHS
from fairlane.wire.errors import HTTP_STATUS, ErrorAnswer
from fairlane.wire.frames import Consume, WatchQueue

Schema: TypeAlias = dict[str, Any]
"""A schema of JSON, or a reference to one."""
_Post: TypeAlias = tuple[str, type[msgspec.Struct], type[msgspec.Struct], str]
_POSTS: Final[dict[str, _Post]] = {
    f"/v1/{path}": (verb.name if path == verb.path else path.rpartition("/")[2], verb.request, verb.answer, verb.right)
    for path, verb in PATHS.items()
}
_STREAMS: Final[dict[str, tuple[str, type[msgspec.Struct], type[msgspec.Struct] | None, str, str]]] = {
    "/v1/queue/subscribe": (
        "subscribe",
        Consume,
        Delivery,
        "application/jsonl",
        "Deliveries as they arrive, one per line.",
    ),
    "/v1/queue/subscribeWithState": (
        "subscribe_with_state",
        Consume,
        Delivery,
        "application/jsonl",
        "Deliveries with workflow state as they arrive, one per line.",
    ),
    "/v1/queue/watch": ("watch", WatchQueue, None, "text/event-stream", "An event whenever messages arrive."),
}
_KINDS: Final = (JSON, MSGPACK)
_EVENTS: Final = ("application/jsonl", "application/vnd.apache.arrow.stream")
_GETS: Final[dict[str, tuple[str, type[msgspec.Struct] | None, tuple[str, ...], str, tuple[str, ...]]]] = {
    "/v1/queues": ("get_queues", QueueList, (), "All queues.", _KINDS),
    "/v1/queues/{name}": ("get_queue", QueueView, (), "A queue with its keys.", _KINDS),
    "/v1/cluster": ("get_cluster", ClusterView, (), "Nodes, and groups of queues with their owners.", _KINDS),
    "/v1/config": (
        "get_config_values",
        ConfigValues,
        ("prefix",),
        "Config values, by the prefix of their keys.",
        _KINDS,
    ),
    "/v1/journal": (
        "get_journal",
        None,
        journal.PARAMETERS,
        "Events of the journal, one per line or as Arrow.",
        _EVENTS,
    ),
    "/v1/live": (
        "live",
        None,
        feed.PARAMETERS,
        "Queues, rates and shares about once a second, as server-sent events.",
        ("text/event-stream",),
    ),
    "/v1/history": (
        "history",
        history.QueueHistory,
        history.PARAMETERS,
        "Activity of one queue, or of all together, in the last hour or day.",
        _KINDS,
    ),
    "/v1/reports": ("reports", reports.Reports, (), "Results of the data pipeline.", _KINDS),
    "/healthz": ("healthz", None, (), "Whether the process is alive.", _KINDS),
    "/readyz": ("readyz", None, (), "Whether the server accepts work.", _KINDS),
    "/metrics": ("metrics", None, (), "Metrics for Prometheus.", ("text/plain",)),
}


def description() -> dict[str, Any]:
    """Return the OpenAPI document."""
    shapes = {shape for _, asked, answered, _ in _POSTS.values() for shape in (asked, answered)}
    shapes |= set(JSON_FORMS.values())
    shapes |= {
        Consume,
        Delivery,
        WatchQueue,
        QueueList,
        QueueView,
        ConfigValues,
        ErrorAnswer,
        reports.Reports,
        history.QueueHistory,
    }
    ordered = sorted(shapes, key=lambda shape: (shape.__module__, shape.__qualname__))
    refs, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    ref_of = dict(zip(ordered, refs, strict=True))
    paths: dict[str, Any] = {}
    for path, (name, asked, answered, right) in _POSTS.items():
        paths.setdefault(path, {})["post"] = _post(name, asked, ref_of[asked], ref_of[answered], right, _topic(asked))
        if asked in JSON_FORMS:
            content = paths[path]["post"]["requestBody"]["content"]
            content[JSON] = {"schema": ref_of[JSON_FORMS[asked]]}
    _add_items(paths)
    _add_raw(paths)
    for path, (name, asked, delivered, kind, told) in _STREAMS.items():
        schema = ref_of[delivered] if delivered is not None else {"type": "string"}
        operation = _post(name, asked, ref_of[asked], schema, "consume", "Subscriptions")
        operation["summary"] = told
        operation["responses"]["200"]["content"] = {kind: {"schema": schema}}
        paths.setdefault(path, {})["post"] = operation
    for path, (name, found, parameters, told, kinds) in _GETS.items():
        operation = _get(name, path, parameters, told)
        operation["responses"]["200"] = _content("Found.", ref_of[found] if found else {}, kinds)
        paths.setdefault(path, {})["get"] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fairlane", "version": __version__, "description": "A durable, fair, multi-tenant queue."},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "responses": {"error": _content("An error, with a code, a cause and a remedy.", ref_of[ErrorAnswer])},
        },
        "security": [{}, {"key": []}],
    }


def _add_items(paths: dict[str, Any]) -> None:
    """Describe the answers to requests whose items succeed or fail separately."""
    for path, (_, _, answered, _) in _POSTS.items():
        if answered in (EnqueueResults, Results):
            responses = paths[path]["post"]["responses"]
            done = "All items succeeded. If all were refused with the same status, that is the status."
            responses["200"] = {**responses["200"], "description": done}
            responses["207"] = {**responses["200"], "description": "The items have different results; see each."}


def _add_raw(paths: dict[str, Any]) -> None:
    """Describe that one payload may be sent and received as raw bytes."""
    payload = {"schema": {"type": "string", "format": "binary"}}
    enqueue = paths["/v1/queue/enqueue"]["post"]
    enqueue["requestBody"]["content"][RAW] = payload
    enqueue["parameters"] = [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in PARAMETERS
    ]
    for path in (Lease.verb.path, *Lease.verb.aliases):
        responses = paths[f"/v1/{path}"]["post"]["responses"]
        responses["200"]["content"][RAW] = payload
        responses["204"] = {"description": f"With Accept: {RAW}: no message was available."}


def _post(name: str, asked: type, request: Schema, answer: Schema, right: str, topic: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": (asked.__doc__ or "").strip().partition("\n")[0],
        "description": f"Needs the right to {right}.",
        "tags": [topic],
        "requestBody": {"required": True, "content": {kind: {"schema": request} for kind in (JSON, MSGPACK)}},
        "responses": {"200": _content("Done.", answer), **_refusals()},
    }


def _topic(asked: type) -> str:
    """Return the task that a request belongs to: the module of its verb."""
    return (
        asked.__module__.rpartition(".")[2]
        .replace("_", " ")
        .replace("keys", "API keys")
        .capitalize()
        .replace("Api", "API")
    )


def _get(name: str, path: str, parameters: tuple[str, ...], told: str) -> dict[str, Any]:
    places = [("path", "name")] if "{name}" in path else []
    places += [("query", parameter) for parameter in parameters]
    return {
        "operationId": name,
        "summary": told,
        "tags": ["Pages"],
        "parameters": [
            {
                "name": parameter,
                "in": place,
                "required": place == "path",
                "schema": {"type": "integer", "minimum": 0}
                if parameter in (*journal.NUMBERS, "keys_max")
                else {"type": "string"},
            }
            for place, parameter in places
        ],
        "responses": _refusals(),
    }


def _content(told: str, schema: Schema, kinds: tuple[str, ...] = _KINDS) -> dict[str, Any]:
    return {"description": told, "content": {kind: {"schema": schema} for kind in kinds}}


def _refusals() -> dict[str, Any]:
    return {str(status): {"$ref": "#/components/responses/error"} for status in sorted(set(HTTP_STATUS.values()))}
