"""Rate limits of callers: the same on every interface, by API key or address, on the broker's clock."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest

from fairlane.errors import RateLimited
from fairlane.gateway.caller import ANYBODY
from fairlane.server.limits import CallLimits
from fairlane.server.rate_limits import RateLimits
from fairlane.server.settings import load
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant
from fairlane.wire.frames import Refused
from fairlane.wire.grpc import broker_pb2 as broker
from fairlane.wire.grpc import types_pb2
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.grpc_client import called, refused, trailing
from tests.unit.server.local_server import connected, opened, run

TWO = CallLimits(requests_per_second=2, requests_burst=2)
LOOK = {"queue": "orders"}
ONE = broker.AckItems(receipts=[types_pb2.Receipt(id="0" * 16, token=1)])


def test_a_bucket_allows_a_burst_and_then_the_rate() -> None:
    """Three requests at once, then one every half second; the error says when to retry."""
    clock = FakeClock()
    rates = RateLimits(2, 3, now_ms=clock.now_ms)
    for _ in range(3):
        rates.check("ann")
    with pytest.raises(RateLimited, match="2 requests per second") as caught:
        rates.check("ann")
    assert caught.value.retry_after_ms == 500
    clock.advance(499)
    with pytest.raises(RateLimited) as caught:
        rates.check("ann")
    assert caught.value.retry_after_ms == 1
    clock.advance(1)
    rates.check("ann")
    with pytest.raises(RateLimited):
        rates.check("ann")


def test_callers_do_not_affect_each_other() -> None:
    """Each caller has its own bucket."""
    rates = RateLimits(1, now_ms=FakeClock().now_ms)
    rates.check("ann")
    rates.check("bob")
    with pytest.raises(RateLimited):
        rates.check("ann")


def test_the_number_of_remembered_callers_is_limited() -> None:
    """The caller that called longest ago is forgotten first."""
    rates = RateLimits(1, 2, now_ms=FakeClock().now_ms, callers_max=3)
    for caller in ("ann", "bob", "cy", "ann", "dee"):
        rates.check(caller)
    assert len(rates) == 3
    with pytest.raises(RateLimited):
        rates.check("ann")


def test_addresses_of_one_network_share_a_limit() -> None:
    """A host with an IPv6 network of its own does not get a fresh bucket with each of its addresses."""

    async def main() -> None:
        async with opened(limits=TWO, clock=FakeClock()) as server:
            for address in ("2001:db8::1", "2001:db8::2"):
                server.context.admit(ANYBODY, address)
            with pytest.raises(RateLimited):
                server.context.admit(ANYBODY, "2001:db8::3")
            server.context.admit(ANYBODY, "2001:db8:0:1::3")

    run(main())


def test_rate_limited_callers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Other errors are logged; these are only counted."""

    async def main() -> None:
        async with opened(limits=TWO, clock=FakeClock()) as server:
            for _ in range(9):
                await server.post("queue/stats", {"queue": "nowhere"})

    with caplog.at_level(logging.INFO, "fairlane.access"):
        run(main())
    assert [record.code for record in caplog.records if hasattr(record, "code")] == ["queue_not_found"] * 2


def test_http_answers_429_with_retry_after() -> None:
    """Health checks are not limited; after the given time the caller is served again."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(limits=TWO, clock=clock) as server:
            for _ in range(2):
                assert (await server.post("queue/stats", LOOK)).status_code == 200
            answer = await server.post("queue/stats", LOOK)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            error = answer.json()["error"]
            assert (error["code"], error["retry_after_ms"]) == ("rate_limited", 500)
            assert (await server.http.get("/healthz")).status_code == 200
            assert server.context.tally.errors["rate_limited"] == 1
            clock.advance(500)
            assert (await server.post("queue/stats", LOOK)).status_code == 200

    run(main())


def test_the_limit_is_by_api_key_and_not_by_connection() -> None:
    """An API key has one bucket for HTTP and the stream together; another key has its own."""

    async def main() -> None:
        async with opened(requires_auth=True, limits=TWO, clock=FakeClock()) as server:
            ann, bob = [await server.key(Grant(right="consume")) for _ in range(2)]
            assert (await server.post("queue/stats", LOOK, key=ann)).status_code == 200
            async with connected(server, key=ann) as socket:
                await socket.answer("stats", LOOK, dict)
                number = socket.call("stats", LOOK)
                told = await socket.next(Refused)
                assert (told.number, told.error.code, told.error.retry_after_ms) == (number, "rate_limited", 500)
            assert (await server.post("queue/stats", LOOK, key=ann)).status_code == 429
            assert (await server.post("queue/stats", LOOK, key=bob)).status_code == 200

    run(main())


def test_grpc_answers_resource_exhausted() -> None:
    """The address identifies the caller, and the metadata says when to retry."""

    async def main() -> None:
        async with called(limits=TWO, clock=FakeClock()) as caller:
            for _ in range(2):
                await caller.enqueue(b"x")
            error = await refused(caller.enqueue(b"x"))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            fields = trailing(error)
            assert (fields["fairlane-code"], fields["fairlane-retry-after-ms"]) == ("rate_limited", "500")

    run(main())


def test_a_rate_limited_grpc_consumer_stays_connected() -> None:
    """Each ack counts; one over the limit is rejected by its number, and the consumer continues."""

    async def main() -> None:
        clock = FakeClock()
        async with called(limits=TWO, clock=clock) as caller:
            call = caller.broker.Consume()
            await call.write(broker.ConsumeRequest(open=broker.ConsumeOpen(queue="orders")))
            for number in (1, 2):
                await call.write(broker.ConsumeRequest(number=number, ack=ONE))
            answers = {(answer := await call.read()).number: answer.WhichOneof("response") for _ in range(2)}
            assert sorted(answers.values()) == ["refused", "results"]
            clock.advance(1_000)
            await call.write(broker.ConsumeRequest(number=3, ack=ONE))
            assert (await call.read()).WhichOneof("response") == "results"
            call.cancel()

    run(asyncio.wait_for(main(), PATIENCE_S))


def test_the_settings_work_from_every_source() -> None:
    """A file, a variable and a flag set them; a burst without a rate is rejected."""
    settings = load("requests_per_second = 5", {"FAIRLANE_REQUESTS_BURST": "9"}, {})
    assert (settings.limits.requests_per_second, settings.limits.requests_burst) == (5, 9)
    assert load(None, {}, {}).limits.requests_per_second is None
    with pytest.raises(ValueError, match="requests_burst needs requests_per_second"):
        load(None, {}, {"requests_burst": "9"})
