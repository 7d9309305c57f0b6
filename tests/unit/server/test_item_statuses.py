"""The HTTP status of requests whose items succeed or fail separately."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from fairlane.model.message import NewMessage
from fairlane.server.limits import CallLimits
from fairlane.verbs.messages import Enqueue

from .local_server import LocalServer, opened, run

if TYPE_CHECKING:
    import httpx

MSGPACK = {"content-type": "application/msgpack"}


async def leased(server: LocalServer, count: int) -> list[dict[str, object]]:
    """Enqueue and lease messages, and return their receipts."""
    await server.post("queue/enqueue", {"queue": "orders", "messages": [{}] * count})
    answer = await server.post("queue/lease", {"queue": "orders", "count": count})
    return [{"id": each["id"], "token": each["token"]} for each in answer.json()["deliveries"]]


def codes(answer: httpx.Response) -> list[str | None]:
    """Return the error code of each result."""
    return [result.get("error", {}).get("code") for result in answer.json()["results"]]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_stale_receipt_is_a_conflict(verb: str) -> None:
    """A request about one message has the status of its error, which the body has on top and in the results."""

    async def main() -> None:
        async with opened() as server:
            (receipt,) = await leased(server, 1)
            stale = {**receipt, "token": 1}
            answer = await server.post(f"queue/{verb}", {"queue": "orders", "receipts": [stale]})
            assert answer.status_code == 409
            assert answer.json()["error"]["code"] == "lease_mismatch"
            assert codes(answer) == ["lease_mismatch"]
            assert answer.json()["error"] == answer.json()["results"][0]["error"]
            assert (await server.post(f"queue/{verb}", {"queue": "orders", "receipts": [receipt]})).status_code == 200

    run(main())


def test_an_unknown_message_is_not_found() -> None:
    """Cancelling one message that does not exist gives 404, and the refusal is counted like any other."""

    async def main() -> None:
        async with opened() as server:
            body = {"queue": "orders", "ids": ["00000000000000ff"]}
            answer = await server.post("queue/cancel", body)
            assert (answer.status_code, codes(answer)) == (404, ["message_not_found"])
            assert server.context.tally.errors["message_not_found"] == 1

    run(main())


def test_different_results_are_a_multi_status() -> None:
    """A request of which some items succeed, or that fail in different ways, gets 207 and a list of results."""

    async def main() -> None:
        async with opened() as server:
            good, other = await leased(server, 2)
            stale, unknown = {**other, "token": 1}, {"id": "00000000000000ff", "token": 1}
            some = await server.post("queue/ack", {"queue": "orders", "receipts": [stale, good]})
            assert (some.status_code, codes(some)) == (207, ["lease_mismatch", None])
            assert set(some.json()) == {"results"}
            none = await server.post("queue/ack", {"queue": "orders", "receipts": [stale, unknown]})
            assert (none.status_code, codes(none)) == (207, ["lease_mismatch", "message_not_found"])

    run(main())


def test_items_refused_alike_share_their_status() -> None:
    """A request of which all items were refused with the same status has that status."""

    async def main() -> None:
        async with opened() as server:
            receipts = [{**receipt, "token": 1} for receipt in await leased(server, 3)]
            answer = await server.post("queue/ack", {"queue": "orders", "receipts": receipts})
            assert (answer.status_code, codes(answer)) == (409, ["lease_mismatch"] * 3)

    run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_backpressure_is_too_many_requests(count: int) -> None:
    """An enqueue whose messages are all refused by backpressure gets 429 with Retry-After, whichever limit it was."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queues/update", {"queue": "orders", "policy": {"waiting_max": 2, "key_waiting_max": 1}})
            await server.post("queue/enqueue", {"queue": "orders", "messages": [{"fairness_key": "a"}, {}]})
            messages = [{"fairness_key": "a"}, {"fairness_key": "b"}, {}][:count]
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": messages})
            assert answer.status_code == 429
            assert codes(answer) == ["key_full", "queue_full", "key_full"][:count]
            assert int(answer.headers["retry-after"]) >= 1

    run(main())


def test_refused_items_come_in_msgpack_as_well() -> None:
    """The status does not depend on the encoding, and the results of a refusal are in the caller's."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queues/update", {"queue": "orders", "policy": {"waiting_max": 1}})
            body = msgspec.msgpack.encode(Enqueue(queue="orders", messages=[NewMessage()]))
            first = await server.http.post("/v1/queue/enqueue", content=body, headers=MSGPACK)
            assert (first.status_code, set(msgspec.msgpack.decode(first.content))) == (200, {"results"})
            second = await server.http.post("/v1/queue/enqueue", content=body, headers=MSGPACK)
            answer = msgspec.msgpack.decode(second.content)
            assert (second.status_code, answer["results"][0]["error"]["code"]) == (429, "queue_full")

    run(main())


def test_a_long_list_of_refusals_needs_room() -> None:
    """If too much is not read yet, a refusal that would be large is answered shortly with 429."""

    async def main() -> None:
        async with opened(limits=CallLimits(unread_bytes_max=1, unread_total_bytes_max=2)) as server:
            answer = await server.post("queue/cancel", {"queue": "orders", "ids": ["00000000000000ff"] * 3_000})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_much_unread")
            assert "results" not in answer.json()

    run(main())


def test_the_description_names_the_statuses() -> None:
    """OpenAPI has 207 for the verbs with a result for each item, and for no other."""

    async def main() -> None:
        async with opened() as server:
            paths = (await server.http.get("/openapi.json")).json()["paths"]
            several = {path for path, methods in paths.items() if "207" in methods.get("post", {}).get("responses", {})}
            assert several == {f"/v1/queue/{verb}" for verb in ("enqueue", "ack", "nack", "extend", "cancel")}

    run(main())
