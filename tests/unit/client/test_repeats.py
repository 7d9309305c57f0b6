"""A client numbers its messages, so that an enqueue whose answer is lost can be sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.client import AsyncClient
from fairlane.client.retries import Retries, is_repeatable
from fairlane.embedded import EmbeddedTransport
from fairlane.errors import Disconnected
from fairlane.model.message import NewMessage
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Shape
from fairlane.wire.spread import enqueue_pieces

QUICK = Retries(first_s=0.0001, longest_s=0.0001)


class LosesAnswers(EmbeddedTransport):
    """A transport that carries out every enqueue, and loses the next answers; it remembers what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = 0
        self.sent: list[Enqueue] = []

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:
        answer = await super().call(verb, request, wait_ms=wait_ms)
        if isinstance(request, Enqueue):
            self.sent.append(request)
            self.losses -= 1
            if self.losses >= 0:
                raise Disconnected("The answer is lost.")
        return answer


def test_a_lost_answer_does_not_double_a_message() -> None:
    """Messages of one call, and of three tasks in two requests, are sent again until answered, and stored once."""

    async def main() -> None:
        transport = LosesAnswers()
        async with AsyncClient(transport, retries=QUICK) as client:
            await client.create_queue("orders")
            ids: list[object] = []
            for ask in (
                lambda: asyncio.gather(client.enqueue("orders", b"x")),
                lambda: client.enqueue_many("orders", [NewMessage(payload=b"x"), NewMessage(dedup_id="own")]),
                lambda: asyncio.gather(*(client.enqueue("orders", b"x") for _ in range(3))),
            ):
                transport.losses = 2
                ids += await ask()
            assert ids == [view.id for view in await client.peek("orders")]
            assert len(transport.sent) == 3 + 3 + 2 * 2

    asyncio.run(main())


def test_numbers_go_on_and_belong_to_one_client() -> None:
    """Each request has the number after those of the last, under a name that no other client has."""

    async def main() -> list[Enqueue]:
        transport = LosesAnswers()
        async with AsyncClient(transport) as client:
            await client.create_queue("orders")
            await client.enqueue_many("orders", [NewMessage(), NewMessage(), NewMessage()])
            await client.enqueue("orders", b"")
            await client.enqueue("orders", b"", dedup_id="own")
            await client.enqueue("orders", b"")
        return transport.sent

    sent, others = asyncio.run(main()), asyncio.run(main())
    assert [request.numbers for request in sent] == [(0,), (3,), (), (4,)]
    assert {request.producer for request in sent} == {sent[0].producer, None}
    assert sent[0].producer != others[0].producer
    assert [message.dedup_id for request in sent for message in request.messages] == [None] * 4 + ["own", None]


def test_a_client_that_does_not_number_reports_the_loss() -> None:
    """Without numbers it is not known whether the message is there, and the client says so."""

    async def main() -> None:
        transport = LosesAnswers()
        async with AsyncClient(transport, retries=QUICK, dedup=False) as client:
            await client.create_queue("orders")
            transport.losses = 1
            with pytest.raises(Disconnected):
                await client.enqueue("orders", b"x")

    asyncio.run(main())


def test_numbered_messages_may_be_sent_again() -> None:
    """A lost answer is no reason to give up where the broker recognises the repeat."""
    numbered = Enqueue(queue="orders", messages=[NewMessage()], producer="p", numbers=(0,))
    assert is_repeatable("enqueue", numbered, Disconnected("Lost."))


def test_messages_keep_their_numbers_on_the_way_to_their_partitions() -> None:
    """Whatever part of a batch goes to a partition, and whatever part of that is repeated, the numbers are the same."""
    messages = [NewMessage(payload=b"%d" % at) for at in range(5)]
    first, second = enqueue_pieces(
        Enqueue(queue="orders", messages=messages, producer="p", numbers=(10,)), [1, 0, 1, 1, 0]
    )
    part = second.request.of_rows([0, 2])  # type: ignore[attr-defined] # an enqueue
    requests: list[Any] = [first.request, second.request, part]
    assert {request.producer for request in requests} == {"p"}
    assert [request.numbers for request in requests] == [(11, 14), (10, 12, 13), (10, 13)]
    payloads = [[message.payload for message in request.messages] for request in requests]
    assert payloads == [[b"1", b"4"], [b"0", b"2", b"3"], [b"0", b"3"]]
