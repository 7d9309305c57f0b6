"""Requests that are being received are bounded over all connections, and for each caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlane.errors import TooMuchArriving
from fairlane.server.limits import CallLimits
from fairlane.server.receiving.arrivals import FREE_BYTES, Arrivals
from tests.unit.server.local_server import LocalServer, opened, run

KIB = 1024


def test_one_caller_has_half_and_all_have_the_whole() -> None:
    """What is over is refused at once; what ends makes room."""
    arrivals = Arrivals(100)
    one, two, other = arrivals.begin("a"), arrivals.begin("a"), arrivals.begin("b")
    assert one.takes(40)
    assert not two.takes(11)
    assert two.takes(10)
    assert other.takes(50)
    assert not arrivals.begin("c").takes(1)
    one.end()
    assert arrivals.begin("c").takes(1)


def test_a_request_above_the_bound_goes_alone() -> None:
    """No configuration makes a request wait for ever."""
    arrivals = Arrivals(100)
    first = arrivals.begin("a")
    assert first.takes(500)
    assert not arrivals.begin("b").takes(1)
    first.end()
    assert arrivals.begin("b").takes(1)


def test_those_who_wait_are_admitted_in_order_and_pass_one_that_waits_for_its_own_caller() -> None:
    """A wait ends with the reservation, with a refusal when it lasts too long, or silently when it is given up."""

    async def main() -> None:
        arrivals = Arrivals(100, wait_s_max=0.05)
        own, others = arrivals.begin("a"), arrivals.begin("b")
        assert own.takes(50)
        assert others.takes(50)
        second = asyncio.create_task(arrivals.admitted("a", 10))
        third = asyncio.create_task(arrivals.admitted("c", 10))
        given_up = asyncio.create_task(arrivals.admitted("c", 10))
        await asyncio.sleep(0)
        given_up.cancel()
        others.end()
        assert (await third).size == 10
        with pytest.raises(TooMuchArriving, match="arriving_total_bytes_max is 100"):
            await second
        own.end()
        assert (await arrivals.admitted("a", 50)).size == 50
        assert not arrivals._waiting

    run(main())


class Body:
    """A body that arrives in two parts: the second when it may."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.may_end = asyncio.Event()
        self.begun = asyncio.Event()

    async def parts(self) -> AsyncIterator[bytes]:
        yield b'{"queue": "orders", "messages": [{}]' + b" " * (FREE_BYTES + KIB)
        yield b" "
        self.begun.set()
        await self.may_end.wait()
        yield b"}"


async def sent(server: LocalServer, body: Body) -> int:
    headers = {"content-type": "application/json", "content-length": str(body.size)}
    return (await server.http.post("/v1/queue/enqueue", content=body.parts(), headers=headers)).status_code


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "too late"])
def test_a_body_waits_until_others_have_arrived(is_late: bool) -> None:
    """It is answered then, or with 429 and Retry-After if that takes too long; nothing is reserved afterwards."""

    async def main() -> None:
        async with opened(limits=CallLimits(arriving_total_bytes_max=400 * KIB)) as server:
            server.context.connections.arrivals = Arrivals(400 * KIB, wait_s_max=0.2 if is_late else 30)
            first, second = Body(150 * KIB), Body(150 * KIB)
            answers = [asyncio.create_task(sent(server, body)) for body in (first, second)]
            begun = [asyncio.create_task(body.begun.wait()) for body in (first, second)]
            await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
            if is_late:
                done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                assert [answer.result() for answer in done] == [429]
            first.may_end.set()
            second.may_end.set()
            assert sorted([await answer for answer in answers]) == ([200, 429] if is_late else [200, 200])
            for each in begun:
                each.cancel()
            assert (server.context.connections.arrivals._taken, server.context.connections.arrivals._taken_by) == (
                0,
                {},
            )

    run(main())
