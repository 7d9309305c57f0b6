"""Answers and frames of a newer server: what this version does not know is left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.model.message import Delivery, FailedAttempt, FailureDetail, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue, Peek
from fairlane.verbs.queues import GetStats, ListQueues
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Request
from fairlane.wire.additions import answer_decoder, known_frames
from fairlane.wire.frames import Answer, Cancelled, Ended, Refused

KNOWN = Answer | Refused | Ended | Cancelled
MAPS = ("weights", "caps", "headers")


def with_more(value: Any) -> Any:
    """Return a value in which each struct has a field more."""
    if isinstance(value, dict):
        more = {"new_in_2": {"a": [1]}}
        return more | {name: each if name in MAPS else with_more(each) for name, each in value.items()}
    return [with_more(each) for each in value] if isinstance(value, list) else value


def newer(answer: object) -> bytes:
    """Return an answer as a newer server would send it."""
    return msgspec.msgpack.encode(with_more(msgspec.msgpack.decode(msgspec.msgpack.encode(answer))))


def broker() -> SteppedBroker:
    """Return a broker with a queue and some messages."""
    made = SteppedBroker()
    made.create_queue("q", {"weights": {"a": 3}, "caps": {"b": 2}, "fairness_key_from": "header:tenant"})
    made.enqueue("q", b"x", headers={"tenant": "a"})
    return made


@pytest.mark.parametrize(
    "request_",
    [Enqueue(queue="q", messages=[NewMessage(payload=b"")]), Peek(queue="q"), ListQueues(), GetStats(queue="q")],
    ids=lambda request: request.verb.name,
)
def test_an_answer_with_more_fields_is_read_without_them(request_: Request[Any]) -> None:
    """Also in parts whose types refuse unknown fields in requests, such as the policy of a queue."""
    answer = broker().call(request_)
    kind = VERBS[request_.verb.name].answer
    assert answer_decoder(kind)(newer(answer)) == answer
    assert answer_decoder(kind)(msgspec.msgpack.encode(answer)) == answer


def test_a_policy_keeps_the_names_of_its_maps() -> None:
    """The keys of a map are data and not fields: none is left out."""
    policy = QueuePolicy(weights={"new_in_2": 2}, caps={"x": 1})
    assert answer_decoder(QueuePolicy)(newer(policy)) == policy


def test_a_delivery_keeps_its_failures() -> None:
    """A struct in a list in a struct is read like the others, and bytes stay bytes."""
    failed = FailedAttempt(at_ms=1, attempt=1, reason="nack", error="no", detail=FailureDetail(worker="w"))
    delivery = Delivery(
        id="1",
        queue="q",
        token=1,
        payload=b"\x00\xff",
        headers={"new_in_2": "kept"},
        fairness_key="a",
        attempt=1,
        expires_ms=1,
        enqueued_ms=1,
        correlation_id="c",
        errors=(failed,),
    )
    assert answer_decoder(list[Delivery])(newer([delivery])) == [delivery]


def test_frames_of_an_unknown_kind_are_left_out() -> None:
    """The frames around them arrive, alone and in an array, with more elements than known."""
    frames = [[1, 7, {"a": 1}, "more"], [99, "what is this"], [5, 3, ["x"]]]
    several = known_frames(msgspec.msgpack.encode(frames), KNOWN)
    assert [(type(frame), frame.__struct_fields__) for frame in several] == [
        (Answer, ("number", "answer")),
        (Cancelled, ("channel", "ids")),
    ]
    assert known_frames(msgspec.msgpack.encode(frames[1]), KNOWN) == []
    assert known_frames(msgspec.msgpack.encode([Cancelled(3, ["x"])]), KNOWN) == [Cancelled(3, ["x"])]


@pytest.mark.parametrize("data", [b"\x90", b"\x91\x90", b"\x92\xa1a\x01", b"\x91\x05", b"\xc1"])
def test_malformed_frames_are_refused(data: bytes) -> None:
    """What is no frame of any version is an error, as before."""
    with pytest.raises(msgspec.DecodeError):
        known_frames(data, KNOWN)


def test_a_wrong_value_is_still_refused() -> None:
    """Leaving out what is unknown does not hide a known field of the wrong type."""
    with pytest.raises(msgspec.ValidationError, match="quantum"):
        answer_decoder(QueuePolicy)(newer({"quantum": "one"}))
