"""Tests of payloads that are JSON values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pydantic
import pytest

from fairlane.client import AsyncClient, Client
from fairlane.errors import InvalidArgument


@dataclass
class Order:
    number: int


class Person(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (None, b"null"),
        (Order(7), b'{"number":7}'),
        (Person(name="Ada"), b'{"name":"Ada"}'),
    ],
)
def test_a_value_is_sent_as_json(value: object, payload: bytes) -> None:
    """Clients and producers, for threads and for asyncio, send plain values, dataclasses and models."""
    with Client.embedded() as client:
        client.create_queue("mail")
        client.enqueue("mail", json=value)
        with client.producer("mail") as producer:
            producer.send(json=value)
        assert [message.payload for message in client.lease("mail", 2)] == [payload] * 2

    async def main() -> None:
        async with AsyncClient.embedded() as client:
            await client.create_queue("mail")
            await client.enqueue("mail", json=value)
            async with client.producer("mail") as producer:
                await producer.send(json=value)
            assert [message.payload for message in await client.lease("mail", 2)] == [payload] * 2

    asyncio.run(main())


def test_a_payload_and_a_value_are_not_both_sent() -> None:
    """Exactly one of message, payload and value is needed; a value must have a JSON form."""
    with Client.embedded() as client:
        client.create_queue("mail")
        with pytest.raises(InvalidArgument, match="exactly one"):
            client.enqueue("mail", b"x", json={})
        with pytest.raises(InvalidArgument, match="exactly one"):
            client.enqueue("mail")
        with pytest.raises(InvalidArgument, match="Cannot encode the payload as JSON"):
            client.enqueue("mail", json=object())
