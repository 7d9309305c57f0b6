"""GET /v1/journal: ranges of any length, and selection of events and columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fairlane.journal.identity import is_journal_id
from tests.kit.ids import numbered

from .local_server import LocalServer, opened, run

ARROW = {"accept": "application/vnd.apache.arrow.stream"}


async def table_of(server: LocalServer, **query: Any) -> Any:
    """Return the events of a range as a table."""
    answer = await server.http.get("/v1/journal", params=query, headers=ARROW)
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all(), answer.headers


async def lines_of(server: LocalServer, **query: Any) -> list[dict[str, Any]]:
    """Return the events of a range as rows."""
    answer = await server.http.get("/v1/journal", params=query)
    assert answer.status_code == 200, answer.text
    return [msgspec.json.decode(line) for line in answer.text.splitlines()]


async def fill(server: LocalServer, count: int, *, key: str = "acme") -> None:
    """Enqueue messages."""
    message = {"payload": "", "fairness_key": key}
    await server.post("queue/enqueue", {"queue": "orders", "messages": [message] * count})


def test_a_range_of_many_slices_is_complete_and_in_order() -> None:
    """A range up to a position is one stream, however long, without an event too many."""

    async def main() -> None:
        async with opened() as server:
            for _ in range(26):
                await fill(server, 1_000)
            table, headers = await table_of(server, after=100, until=25_500)
            assert table.column("sequence").to_pylist() == list(range(101, 25_501))
            assert (headers["x-fairlane-position"], headers["x-fairlane-beginning"]) == ("25500", "0")
            end = int(headers["x-fairlane-end"])
            table, headers = await table_of(server, after=25_500, until=10**12)
            assert table.column("sequence").to_pylist()[-1] == end
            assert headers["x-fairlane-position"] == str(end)

    run(main())


def test_every_answer_names_its_journal() -> None:
    """Headers, Arrow metadata and rows carry the same id, so that a reader notices a replaced broker."""

    async def main() -> None:
        async with opened() as house, opened() as other:
            await fill(house, 3)
            table, headers = await table_of(house, after=0, until=100)
            journal_id = headers["x-fairlane-journal"]
            assert is_journal_id(journal_id)
            assert headers["x-fairlane-since"] == "0"
            assert table.schema.metadata[b"fairlane.journal.id"] == journal_id.encode()
            assert set(table.column("journal_id").to_pylist()) == {journal_id}
            lines = await house.http.get("/v1/journal")
            assert lines.headers["x-fairlane-journal"] == journal_id
            _, elsewhere = await table_of(other, after=0)
            assert elsewhere["x-fairlane-journal"] != journal_id

    run(main())


def test_json_lines_name_the_position_to_continue_from() -> None:
    """As JSON lines, a range of many slices ends early and names the next position."""

    async def main() -> None:
        async with opened() as server:
            for _ in range(12):
                await fill(server, 1_000)
            seen: list[int] = []
            after = 0
            while after < 11_500:
                answer = await server.http.get("/v1/journal", params={"after": after, "until": 11_500})
                seen += [msgspec.json.decode(line)["sequence"] for line in answer.text.splitlines()]
                after = int(answer.headers["x-fairlane-position"])
            assert seen[-1] == 11_500
            assert len(seen) == len(set(seen)) >= 11_490

    run(main())


def test_events_and_columns_are_selected() -> None:
    """Kinds, queues, messages, times and columns select the same in JSON lines and Arrow."""

    async def main() -> None:
        async with opened() as server:
            await fill(server, 3)
            await server.post("queue/dequeue", {"queue": "orders", "count": 2})
            everything = await lines_of(server)
            ids = [event["message_id"] for event in everything if event["kind"] == "enqueued"]
            at_ms = everything[-1]["at_ms"]
            for query, expected in (
                ({"kinds": "leased,opened"}, {"leased", "opened"}),
                ({"queues": "none"}, set()),
                ({"queues": "orders", "kinds": "enqueued"}, {"enqueued"}),
                ({"since_ms": at_ms + 1}, set()),
                ({"until_ms": 0}, set()),
                ({"message_ids": ids[0]}, {"enqueued", "leased"}),
            ):
                lines = await lines_of(server, **query)
                table, _ = await table_of(server, until=1_000, **query)
                assert {line["kind"] for line in lines} == expected, query
                assert table.column("kind").to_pylist() == [line["kind"] for line in lines]
            table, _ = await table_of(server, columns="kind,sequence")
            assert table.schema.names == ["sequence", "kind"]
            assert all(set(line) == {"sequence", "kind"} for line in await lines_of(server, columns="kind,sequence"))

    run(main())


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"until": 5, "count": 5}, "not both"),
        ({"kinds": "leesed"}, "leesed"),
        ({"columns": "sequence,kin"}, "kin"),
        ({"on_trimmed": "ignore"}, "fail or skip"),
        ({"until": "x"}, "must be an integer"),
        ({"after": "9" * 5000}, "must be an integer"),
    ],
)
def test_invalid_parameters_are_rejected(query: dict[str, Any], text: str) -> None:
    """The error names the parameter."""

    async def main() -> None:
        async with opened() as server:
            answer = await server.http.get("/v1/journal", params=query)
            assert answer.status_code == 400
            assert text in answer.json()["error"]["cause"]

    run(main())


def test_messages_are_found_by_their_correlation_id() -> None:
    """JSON lines and Arrow have the enqueue events of these messages and no others."""

    async def main() -> None:
        async with opened() as server:
            messages = [{"correlation_id": each} for each in ("order-7, twice", "order-8", "order-7, twice")] + [{}]
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": messages})
            ids = [each["id"] for each in answer.json()["results"]]
            numbers = [f"{numbered(each):016x}" for each in ids]
            await server.post("queue/dequeue", {"queue": "orders", "count": 4})
            found = await lines_of(server, correlation_id="order-7, twice")
            assert [(each["kind"], each["message_id"]) for each in found] == [
                ("enqueued", numbers[0]),
                ("enqueued", numbers[2]),
            ]
            table, _ = await table_of(server, correlation_id="order-7, twice", columns="sequence,message_id")
            assert table.column("message_id").to_pylist() == [numbers[0], numbers[2]]
            both = await lines_of(server, correlation_id="order-7, twice", message_ids=ids[2])
            assert [each["message_id"] for each in both] == [numbers[2]]
            assert await lines_of(server, correlation_id="order-9") == []

    run(main())


def test_events_of_a_message_are_found_by_id_and_by_number() -> None:
    """Both ways in JSON lines and in Arrow; an id of another store has no events here."""

    async def main() -> None:
        async with opened() as server:
            message_id = await server.broker.enqueue("orders", b"")
            await server.broker.enqueue("orders", b"")
            number = f"{numbered(message_id):016x}"
            for named in (message_id, number, f"{message_id},nothing"):
                assert [each["message_id"] for each in await lines_of(server, message_ids=named)] == [number]
                table, _ = await table_of(server, message_ids=named)
                assert table.column("message_id").to_pylist() == [number]
            other = message_id[:-4] + ("0000" if message_id[-4:] != "0000" else "1111")
            assert await lines_of(server, message_ids=other) == []

    run(main())
