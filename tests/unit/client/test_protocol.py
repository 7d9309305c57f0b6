"""The client's side of the stream, without a network."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.transport.protocol import FRAMES_MAX, Conversation, grouped, message_of
from fairlane.errors import Closed, Disconnected, FairlaneError, InternalError, QueueNotFound
from fairlane.model.message import Delivery
from fairlane.verbs.errors import body_of
from fairlane.verbs.leases import Lease, LeasedMessages, Nack
from fairlane.verbs.queues import MessageCount, PurgeQueue
from fairlane.verbs.verb import Done
from fairlane.wire.frames import Answer, Consume, Deliver, Ended, Refused, Stop, calls_of, is_many

QUEUE = PurgeQueue(queue="q")


def delivery(number: int) -> Delivery:
    """Return a leased message."""
    return Delivery(
        id=f"{number:016x}",
        queue="q",
        token=number,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=1,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )


def encoded(answer: object) -> msgspec.Raw:
    """Return an answer as it is inside a frame."""
    return msgspec.Raw(msgspec.msgpack.encode(answer))


class Taken:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.error: FairlaneError | None = None

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries

    def ended(self, error: FairlaneError) -> None:
        self.error = error

    def cancelled(self, ids: Sequence[str]) -> None:
        self.gone = list(ids)

    def withdraw(self, matches: Callable[[str], bool]) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if matches(delivery.id)]


class Desk:
    """A conversation, and the other side of it."""

    def __init__(self) -> None:
        self.talk = Conversation()

    def ask(self, verb: str, request: Any, *, due: float = 10.0) -> tuple[int, Future[Any]]:
        reply: Future[Any] = Future()
        (call,) = calls_of(self.talk.call(verb, request, reply, due=due))
        return call.number, reply

    def hear(self, *frames: Any) -> list[Any]:
        data = msgspec.msgpack.encode(list(frames)) if len(frames) > 1 else msgspec.msgpack.encode(frames[0])
        return [calls_of(frame)[0] for frame in self.talk.receive(data)]

    def open(self, sink: Taken) -> tuple[int, Future[Any]]:
        reply: Future[Any] = Future()
        number, _ = self.talk.open(Consume(queue="q"), reply, sink, due=10.0)
        return number, reply


def test_answers_find_their_calls_in_any_order() -> None:
    """Each call has a number of its own, and its answer is read as the verb says."""
    desk = Desk()
    first, one = desk.ask("purge", QUEUE)
    second, two = desk.ask("delete_queue", QUEUE)
    desk.hear(Answer(second, encoded(Done())), Answer(first, encoded(MessageCount(count=3))))
    assert (one.result(), two.result()) == (MessageCount(count=3), Done())


def test_a_refusal_is_the_error_that_was_raised() -> None:
    """A refused call fails with the error's own class; a code that is unknown is a fault of the server."""
    desk = Desk()
    number, reply = desk.ask("purge", QUEUE)
    desk.hear(Refused(number, body_of(QueueNotFound("No q."))))
    assert isinstance(reply.exception(), QueueNotFound)
    number, reply = desk.ask("purge", QUEUE)
    desk.hear([2, number, {"code": "new_one", "cause": "c", "remedy": "r"}])
    assert isinstance(reply.exception(), InternalError)


def test_a_server_that_closes_is_a_lost_connection() -> None:
    """What a server that goes down refuses can be asked again of the next, so it is not as if we were closed."""
    desk = Desk()
    number, reply = desk.ask("purge", QUEUE)
    desk.hear(Refused(number, body_of(Closed("Going down."))))
    assert isinstance(reply.exception(), Disconnected)


def test_what_was_leased_for_nobody_goes_back() -> None:
    """Messages leased for a cancelled caller are returned as unseen."""
    desk = Desk()
    number, reply = desk.ask("lease", Lease(queue="q"))
    reply.cancel()
    (call,) = desk.hear(Answer(number, encoded(LeasedMessages(deliveries=[delivery(7)]))))
    nack = msgspec.msgpack.decode(call.request, type=Nack)
    assert (call.verb, nack.intent, [receipt.token for receipt in nack.receipts]) == ("nack", "defer", [7])


def test_what_comes_too_late_is_handed_to_whoever_wants_it() -> None:
    """Late messages of a cancelled lease or a stopped channel go to on_late, and no frame is sent."""
    late: list[Delivery] = []
    desk = Desk()
    desk.talk = Conversation(on_late=late.extend)
    number, reply = desk.ask("lease", Lease(queue="q"))
    reply.cancel()
    stopped, forgotten = desk.open(Taken())[0], desk.open(Taken())[0]
    desk.talk.stop(stopped, [], Future(), due=10.0)
    desk.talk.forget(forgotten)
    leased = Answer(number, encoded(LeasedMessages(deliveries=[delivery(1)])))
    assert desk.hear(leased, Deliver(stopped, [delivery(2)]), Deliver(forgotten, [delivery(3)])) == []
    assert [one.token for one in late] == [1, 2, 3]


def test_a_channel_that_was_opened_for_nobody_is_closed_with_all_that_came_on_it() -> None:
    """The closing frame says that nothing was received, so that the server takes all messages back."""
    talk = Conversation()
    number, _ = talk.open(Consume(queue="q"), Future(), Taken(), due=10.0)
    talk.forget(number)
    (call,) = calls_of(talk.abandon(number, Future(), due=10.0))
    stop = msgspec.msgpack.decode(call.request, type=Stop)
    assert (call.verb, stop.channel, stop.received, stop.unseen) == ("stop", number, 0, ())


def test_an_answer_to_nothing_is_let_be() -> None:
    """Answers and refusals of unknown calls are ignored."""
    desk = Desk()
    assert desk.hear(Answer(99, encoded(Done())), Refused(98, body_of(Closed("x")))) == []
    assert desk.hear(Deliver(97, [delivery(1)]), Ended(96, body_of(Closed("x")))) == []


def test_a_channel_delivers_and_counts() -> None:
    """Deliveries go to the channel's sink, and its stop says how many have come and which were not seen."""
    desk, sink = Desk(), Taken()
    number, reply = desk.open(sink)
    desk.hear(Answer(number, encoded(Done())), Deliver(number, [delivery(1), delivery(2)]))
    assert reply.done()
    assert [each.token for each in sink.deliveries] == [1, 2]
    frame = desk.talk.stop(number, ["x"], Future(), due=10.0)
    assert frame is not None
    stop = msgspec.msgpack.decode(calls_of(frame)[0].request, type=Stop)
    assert stop == Stop(channel=number, unseen=("x",), received=2)
    desk.hear(Deliver(number, [delivery(3)]))
    assert len(sink.deliveries) == 2
    assert desk.talk.stop(number, [], Future(), due=10.0) is None


def test_a_channel_that_is_refused_is_none() -> None:
    """A consume that is refused fails, and its number names no channel."""
    desk, sink = Desk(), Taken()
    number, reply = desk.open(sink)
    desk.hear(Refused(number, body_of(QueueNotFound("No q."))))
    assert isinstance(reply.exception(), QueueNotFound)
    assert desk.talk.stop(number, [], Future(), due=10.0) is None


def test_a_channel_hears_of_its_end() -> None:
    """The sink of a channel learns why it has ended."""
    desk, sink = Desk(), Taken()
    number, _ = desk.open(sink)
    desk.hear(Ended(number, body_of(QueueNotFound("Gone."))))
    assert isinstance(sink.error, QueueNotFound)


def test_a_lost_connection_fails_everything() -> None:
    """Every call and channel fails once; cancelled calls are left alone."""
    desk, sink = Desk(), Taken()
    _, waiting = desk.ask("purge", QUEUE)
    _, given_up = desk.ask("purge", QUEUE)
    given_up.cancel()
    desk.open(sink)
    desk.talk.lose(Disconnected("Lost."))
    desk.talk.lose(Disconnected("Lost again."))
    assert str(waiting.exception()).startswith("Lost.")
    assert isinstance(sink.error, Disconnected)


def test_calls_have_a_time() -> None:
    """A call fails once its time is over; one that has more stays."""
    desk = Desk()
    _, early = desk.ask("purge", QUEUE, due=1.0)
    _, late = desk.ask("purge", QUEUE, due=3.0)
    desk.talk.expire(2.0)
    desk.talk.expire(2.5)
    assert isinstance(early.exception(), Disconnected)
    assert not late.done()


@pytest.mark.parametrize("data", [b"", b"\x90", b"\x91", b"hello", b"\x93\x09\x01\x02", b"\xff" * 20])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """Invalid bytes raise a decode error, whatever they are; a frame of a later version is left out."""
    talk = Conversation()
    try:
        assert talk.receive(data) == []
    except msgspec.DecodeError:
        return
    assert data in (b"\x90", b"\x93\x09\x01\x02")


@given(st.lists(st.integers(min_value=0, max_value=3), max_size=600), st.randoms(use_true_random=False))
def test_frames_are_grouped_without_loss(sizes: list[int], chance: random.Random) -> None:
    """However frames are put into messages, they come out in order, and no message has too many."""
    requests = [PurgeQueue(queue="q" * chance.choice([1, 10, 30_000]) if size else "q") for size in sizes]
    talk = Conversation()
    frames = [talk.call("purge", request, Future(), due=1.0) for request in requests]
    messages = [message_of(some) for some in grouped(frames)]
    assert all(is_many(message) for message in messages)
    calls = [calls_of(message) for message in messages]
    assert [call.number for some in calls for call in some] == list(range(1, len(frames) + 1))
    assert max((len(some) for some in calls), default=0) <= FRAMES_MAX
