"""What a client must be able to do over every transport, as tests for each of them.

Make a class of your tests from ``TransportContract`` and say in ``server`` what clients connect to; pytest, unittest
and plain calls can run it. The other parts of it are in ``transport_operators`` and ``transport_streams``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from fairlane.client import AsyncClient, NewMessage, Transport
from fairlane.errors import (
    FairlaneError,
    InvalidArgument,
    LeaseMismatch,
    MessageCancelled,
    MessageNotFound,
    NotADlq,
    QueueExists,
    QueueFull,
    QueueNotFound,
    ReaderNotFound,
    StateMismatch,
    WaitTimedOut,
)
from fairlane.model.limits import PAYLOAD_BYTES_MAX, PIECE_BYTES
from fairlane.verbs.messages import Enqueue

_AT_ONCE = {"backoff_ms": 0, "backoff_jitter": 0.0}


def check_same(got: object, wanted: object, what: str) -> None:
    """Fail unless two values are the same."""
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


async def check_refused(kind: type[FairlaneError], asked: Awaitable[object]) -> None:
    """Fail unless a call raises an error of exactly this class."""
    try:
        result = await asked
    except FairlaneError as error:
        check_same((type(error), error.code), (kind, kind.code), "kind of error")
    else:
        raise AssertionError(f"It was not refused with {kind.__name__} but answered with {result!r}.")


class TransportContract:
    """The contract of a client. Each test has its own empty server."""

    def server(self) -> AbstractContextManager[str | Transport]:
        """Provide what a client connects to: an address or a transport."""
        raise NotImplementedError

    def run(self, scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
        """Run a scenario with a client, and a queue ``jobs``."""

        async def main(server: str | Transport) -> None:
            async with AsyncClient(server) as client:
                await client.create_queue("jobs", _AT_ONCE)
                await scenario(client)

        with self.server() as server:
            asyncio.run(main(server))

    # -------------------------------------------------------------------------------------------------------- messages

    def test_a_message_lives_from_enqueue_to_ack(self) -> None:
        """What is enqueued is leased as it was sent, and gone once acked."""

        async def scenario(client: AsyncClient) -> None:
            message_id = await client.enqueue("jobs", b"\x00payload", headers={"a": "ä"}, correlation_id="c-1", cost=3)
            (message,) = await client.lease("jobs", owner="me")
            sent = (message.id, message.payload, message.headers, message.correlation_id, message.cost, message.attempt)
            check_same(sent, (message_id, b"\x00payload", {"a": "ä"}, "c-1", 3, 1), "message")
            await message.ack(cost=5)
            check_same(await client.lease("jobs"), [], "what is left")
            await check_refused(MessageNotFound, message.ack())

        self.run(scenario)

    def test_a_payload_of_any_size_is_streamed(self) -> None:
        """A payload that is uploaded in pieces arrives whole, and one too large for a delivery is read in ranges."""

        async def scenario(client: AsyncClient) -> None:
            sizes = (PIECE_BYTES + 1, PAYLOAD_BYTES_MAX + 1)
            for size in sizes:
                part, rest = b"0123456789abcdef" * 4_096, size % 65_536
                await client.enqueue_stream("jobs", [part] * (size // 65_536) + [part[:rest]], headers={"n": str(size)})
                (message,) = await client.lease("jobs")
                received = b"".join([piece async for piece in message.reader()])
                check_same((len(received), received[-rest:]), (size, part[:rest]), "payload as read")
                check_same((message.headers, message.is_streamed), ({"n": str(size)}, size == sizes[1]), "message")
                await message.ack()

        self.run(scenario)

    def test_each_message_of_a_batch_has_a_result_of_its_own(self) -> None:
        """If a limit of two is reached, the third message is rejected and the others are enqueued."""

        async def scenario(client: AsyncClient) -> None:
            await client.create_queue("small", {"waiting_max": 2})
            results = await client.enqueue_many("small", [NewMessage(payload=b"%d" % number) for number in range(3)])
            check_same([type(result) for result in results], [str, str, QueueFull], "results")
            messages = await client.lease("small", 10)
            check_same([message.payload for message in messages], [b"0", b"1"], "messages")
            check_same(await client.ack_many("small", messages, costs=[1, None]), [None, None], "acks")
            errors = await client.ack_many("small", messages)
            check_same([type(error) for error in errors], [MessageNotFound] * 2, "acks of what is gone")

        self.run(scenario)

    def test_what_is_enqueued_at_once_has_results_of_its_own(self) -> None:
        """Of fifty messages enqueued by fifty tasks, one that is invalid is refused without harm to the others."""

        async def scenario(client: AsyncClient) -> None:
            costs = [1] * 20 + [0] + [1] * 29
            calls = [client.enqueue("jobs", b"x", cost=cost) for cost in costs]
            results = await asyncio.gather(*calls, return_exceptions=True)
            check_same(type(results.pop(20)), InvalidArgument, "result of the invalid one")
            check_same(len({result for result in results if isinstance(result, str)}), 49, "ids")
            check_same((await client.queue("jobs")).waiting, 49, "waiting")

        self.run(scenario)

    def test_a_dedup_id_makes_an_enqueue_the_same(self) -> None:
        """Two messages with one dedup id are one; two without are two."""

        async def scenario(client: AsyncClient) -> None:
            first = await client.enqueue("jobs", b"x", dedup_id="once")
            check_same(await client.enqueue("jobs", b"x", dedup_id="once"), first, "id of the second")
            message = NewMessage(payload=b"x")
            check_same(len(set(await client.enqueue_many("jobs", [message, message]))), 2, "ids without a dedup id")

        self.run(scenario)

    def test_a_unique_key_is_taken_while_its_message_is_not_done(self) -> None:
        """A second message with the key of one that waits gets its id, and the view of that one shows the key."""

        async def scenario(client: AsyncClient) -> None:
            first = await client.enqueue("jobs", b"x", unique_key="once")
            check_same(await client.enqueue("jobs", b"x", unique_key="once"), first, "id of the second")
            third = await client.enqueue_one("jobs", b"x", unique_key="once")
            check_same((third.id, third.is_repeat), (first, True), "result of the third")
            check_same((await client.enqueue_one("jobs", b"x")).is_repeat, False, "is_repeat of another message")
            check_same((await client.get("jobs", first)).unique_key, "once", "unique key")

        self.run(scenario)

    def test_a_fan_out_ends_in_its_continuation(self) -> None:
        """Members and continuation arrive as sent, and a repeated name is answered with the same ids."""

        async def scenario(client: AsyncClient) -> None:
            members, then = {"jobs": [NewMessage(payload=b"member")]}, NewMessage(payload=b"then")
            sent = await client.fan_out("jobs", then, members, name="f", on_failure="run")
            again = await client.fan_out("jobs", then, members, name="f", on_failure="run")
            check_same((again.id, again.ids, again.is_repeat), (sent.id, sent.ids, True), "ids of the second")
            (member,) = await client.lease("jobs", 10)
            check_same((member.id, member.payload), (sent.ids[0], b"member"), "member")
            await member.dead_letter("no")
            (last,) = await client.lease("jobs", 10)
            check_same((last.id, last.payload), (sent.id, b"then"), "continuation")
            found = (await client.status(sent.id)).members
            check_same(found and (found.total, found.done, found.failed), (1, 0, 1), "members")

        self.run(scenario)

    def test_a_message_has_limits_of_its_own(self) -> None:
        """Its attempts and its visibility timeout arrive, and count instead of the queue's."""

        async def scenario(client: AsyncClient) -> None:
            message_id = await client.enqueue("jobs", b"x", max_attempts=1, visibility_timeout_ms=400_000)
            view = await client.get("jobs", message_id)
            check_same((view.max_attempts, view.visibility_timeout_ms), (1, 400_000), "limits")
            (message,) = await client.lease("jobs")
            check_same(message.expires_ms > view.enqueued_ms + 300_000, True, "a long lease")
            await message.nack("no")
            check_same((await client.queue("jobs.dlq")).waiting, 1, "dead letters")

        self.run(scenario)

    def test_a_result_reaches_the_caller_that_waits_for_it(self) -> None:
        """A wait ends with the acknowledgement, and the status tells the life of the message before and after."""

        async def scenario(client: AsyncClient) -> None:
            message_id = await client.enqueue("jobs", b"x", result_ttl_ms=60_000)
            await check_refused(WaitTimedOut, client.result(message_id))
            waiting = asyncio.ensure_future(client.result(message_id, queue="jobs", wait_ms=60_000))
            (message,) = await client.lease("jobs", owner="me")
            running = await client.status(message_id)
            check_same((running.status, running.owner), ("running", "me"), "status while it is leased")
            await message.ack(result=b"done")
            check_same(await waiting, b"done", "result")
            done = await client.status(message_id)
            check_same((done.status, done.result_bytes, done.queue), ("done", 4, "jobs"), "status after that")
            await check_refused(MessageNotFound, client.status("0" * 16))

        self.run(scenario)

    def test_the_holder_of_a_cancelled_message_is_told(self) -> None:
        """A lease is revoked by a cancel, and its holder is refused by name."""

        async def scenario(client: AsyncClient) -> None:
            message_id = await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs")
            await client.cancel("jobs", message_id, reason="not needed")
            await check_refused(MessageCancelled, message.extend())
            await check_refused(MessageCancelled, message.ack())
            check_same((await client.status(message_id)).reason, "not needed", "reason")

        self.run(scenario)

    def test_a_repeated_number_makes_an_enqueue_the_same(self) -> None:
        """A request that is sent again, whole or in part, is answered with the ids of the first time."""

        async def scenario(client: AsyncClient) -> None:
            messages = [NewMessage(payload=b"%d" % number) for number in range(3)]
            request = Enqueue(queue="jobs", messages=messages, producer="a-program", numbers=(7,))
            first = await client.call(request)
            check_same(await client.call(request), first, "answer to the repeat")
            part = await client.call(request.of_rows([0, 2]))
            check_same(part.results, [first.results[0], first.results[2]], "answer to the repeat of a part")
            check_same((await client.queue("jobs")).waiting, 3, "waiting")
            unsound = Enqueue(queue="jobs", messages=messages, producer="a-program", numbers=(9, 8, 7))
            await check_refused(InvalidArgument, client.call(unsound))

        self.run(scenario)

    def test_messages_are_given_back_in_three_ways(self) -> None:
        """A nack counts a failure and keeps its text, a defer counts none, and a dead letter is one at once."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs")
            check_same(await message.defer(0), "waiting", "what became of a deferred message")
            (message,) = await client.lease("jobs", wait_ms=5_000)
            check_same((message.attempt, message.failures), (2, 0), "attempt and failures after a defer")
            check_same(await message.nack("it broke", delay_ms=1), "delayed", "what became of a failed message")
            (message,) = await client.lease("jobs", wait_ms=5_000)
            check_same((message.failures, message.errors[-1].error), (1, "it broke"), "failures after a nack")
            await message.dead_letter("hopeless")
            (dead,) = await client.lease("jobs.dlq")
            check_same(dead.dead and dead.dead.reason, "requested", "reason of the dead letter")
            check_same(dead.errors[-1].error, "hopeless", "error of the dead letter")

        self.run(scenario)

    def test_a_message_left_unacked_is_nacked(self) -> None:
        """Leaving the block of a message nacks it with the text of the exception, or without one."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            for wanted in ("ValueError: no good", ""):
                (message,) = await client.lease("jobs", wait_ms=5_000)
                try:
                    async with message:
                        if wanted:
                            raise ValueError("no good")  # noqa: TRY301 - it is what a handler does
                except ValueError:
                    pass
                view = await client.get("jobs", message.id)
                check_same(view.errors[-1].error, wanted, "text of the failure")
            (message,) = await client.lease("jobs", wait_ms=5_000)
            async with message:
                await message.ack()
            check_same((await client.queue("jobs")).waiting, 0, "waiting")

        self.run(scenario)

    def test_a_stale_lease_is_refused(self) -> None:
        """A consumer that lost its lease cannot ack, nack, extend or write state, and nothing changes."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            (stale,) = await client.lease("jobs")
            await client.nack(stale.delivery, intent="defer", delay_ms=0)
            (fresh,) = await client.lease("jobs", wait_ms=5_000)
            for asked in (stale.ack(), stale.nack(), stale.extend(), stale.set_state(b"s")):
                await check_refused(LeaseMismatch, asked)
            before = fresh.expires_ms
            check_same(max(await fresh.extend(600_000), before), fresh.expires_ms, "end of the longer lease")
            await fresh.ack()

        self.run(scenario)

    def test_an_ack_can_forward(self) -> None:
        """An ack with messages for other queues does all of it, or nothing when one is refused."""

        async def scenario(client: AsyncClient) -> None:
            await client.create_queue("next")
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs")
            await check_refused(QueueNotFound, message.ack(forward={"nowhere": [NewMessage()]}))
            ids = await message.ack(forward={"next": [NewMessage(payload=b"1"), NewMessage(payload=b"2")]})
            check_same([view.id for view in await client.peek("next")], ids, "forwarded")
            check_same((await client.queue("jobs")).leased, 0, "leased")

        self.run(scenario)

    def test_workflow_state_stays_with_its_message(self) -> None:
        """State is written under its version, comes with the next lease, and goes when removed."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs", with_state=True)
            check_same((message.state, message.state_etag), (None, None), "state at first")
            etag = await message.set_state(b"step 1")
            check_same(await client.get_state("jobs", message.id), (b"step 1", etag), "state as read")
            await check_refused(StateMismatch, client.set_state(message, b"other", etag=None))
            await message.set_state(b"step 2")
            await message.defer(0)
            (message,) = await client.lease("jobs", with_state=True, wait_ms=5_000)
            check_same(message.state, b"step 2", "state at the next lease")
            check_same(await message.set_state(None), None, "etag of no state")

        self.run(scenario)

    def test_a_delivery_carries_its_deadline(self) -> None:
        """A message with a deadline says when that is, and how much time was left at the hand-out."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"soon", deadline_ms=3_600_000)
            await client.enqueue("jobs", b"whenever")
            soon, whenever = await client.lease("jobs", 2)
            check_same(soon.deadline_ms, soon.enqueued_ms + 3_600_000, "deadline")
            check_same(soon.delivery.time_left_ms in range(3_000_000, 3_600_001), True, "time left is plausible")
            check_same((whenever.deadline_ms, whenever.delivery.time_left_ms), (None, None), "no deadline")

        self.run(scenario)

    def test_a_cancelled_lease_loses_nothing(self) -> None:
        """A message that arrives after a consumer gave up goes to the next consumer, without a failure."""

        async def scenario(client: AsyncClient) -> None:
            waiting = asyncio.ensure_future(client.lease("jobs", wait_ms=60_000))
            while not (await client.queue("jobs")).waiters:
                pass
            waiting.cancel()
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs", wait_ms=5_000)
            check_same((message.payload, message.failures), (b"x", 0), "message")

        self.run(scenario)

    def test_shares_are_fair(self) -> None:
        """A quiet tenant's only message comes among the first two, behind a crowd of another's."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(payload=b"noise", fairness_key="loud")] * 50)
            await client.enqueue("jobs", b"word", fairness_key=("quiet", "mobile"))
            first = await client.lease("jobs", 2)
            check_same({message.fairness_key for message in first}, {"loud", ("quiet", "mobile")}, "first keys")

        self.run(scenario)

    def test_errors_are_those_of_the_broker(self) -> None:
        """Each refusal is an error of the class and code that the broker itself raises."""

        async def scenario(client: AsyncClient) -> None:
            await check_refused(QueueExists, client.create_queue("jobs"))
            for asked in (
                client.enqueue("none", b""),
                client.lease("none"),
                client.purge("none"),
                client.queue("none"),
            ):
                await check_refused(QueueNotFound, asked)
            bad: Any = "text"
            wrong = (client.create_queue("x", {"max_attempts": -1}), client.lease("jobs", 0), client.peek("jobs", 0))
            for refused in (*wrong, client.enqueue("jobs", bad), client.enqueue("jobs", b"", colour="red")):  # type: ignore[call-arg]
                await check_refused(InvalidArgument, refused)
            await check_refused(NotADlq, client.redrive("jobs"))
            await check_refused(MessageNotFound, client.explain("jobs", "0" * 16))
            await check_refused(ReaderNotFound, client.remove_reader("nobody"))

        self.run(scenario)
