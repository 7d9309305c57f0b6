"""Tests of the arguments of tasks: what is sent, and what is refused on which side."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from fairlane.tasks.arguments import TaskArguments
from fairlane.worker import WorkMessage

from .definitions import Address, Customer, Item


def of(function: Callable[..., Any]) -> TaskArguments:
    return TaskArguments("job", function, "json")


def roundtrip(arguments: TaskArguments, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments by name as the worker's function gets them."""
    payload, _ = arguments.encode(args, kwargs)
    positional, named = arguments.decode(payload)
    return dict(zip(arguments.parameters, positional, strict=False)) | named


def test_arguments_of_every_supported_kind_arrive_as_their_types() -> None:
    """Plain values, dataclasses, Structs, pydantic models, and lists and options of them survive the way."""

    def job(at: datetime, to: Address, items: list[Item], who: Customer | None, *, note: str = "none") -> None: ...

    sent = {
        "at": datetime(2026, 3, 1, tzinfo=UTC),
        "to": Address("Main St", 4),
        "items": [Item("cup", 250)],
        "who": Customer(email="a@b.c", age=30),
    }
    assert roundtrip(of(job), **sent) == sent
    assert roundtrip(of(job), **{**sent, "who": None, "note": "x"}) == {**sent, "who": None, "note": "x"}


def test_the_payload_is_a_json_object_without_defaults() -> None:
    """An argument that is not given is not sent, so the default of the worker's function counts."""

    def job(order_id: int, tenant: str = "acme") -> None: ...

    assert of(job).encode((7,), {})[0] == b'{"order_id":7}'


def test_arguments_may_be_msgpack() -> None:
    """With the encoding msgpack the payload is a map of msgpack."""

    def job(order_id: int) -> None: ...

    arguments = TaskArguments("job", job, "msgpack")
    payload, _ = arguments.encode((7,), {})
    assert payload == b"\x81\xa8order_id\x07"
    assert arguments.decode(payload) == ([7], {})


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {"order_id": "7", "who": None}, "order_id: Expected `int`, got `str`"),
        ((), {"who": None}, "order_id"),
        ((7, None), {"tenant": "acme"}, "tenant"),
        ((), {"ordre_id": 7, "who": None}, "'ordre_id'. Did you mean 'order_id'[?]$"),
        ((7,), {"order_id": 8, "who": None}, "order_id twice"),
        ((1, None, [], 3), {}, "takes 3 positional arguments, got 4"),
        ((7, {"email": "a@b.c", "age": "old"}), {}, r"job': who\.age: Input should be a valid integer, .* \S+$"),
        ((7, {}), {}, r"job': who\.email: Field required \(and 1 more\)\.$"),
        ((7, None, [{"email": "a@b.c", "age": 1}, {"email": 1, "age": 1}]), {}, r"job': others\[1\]\.email: Input"),
        ((7, object()), {}, "job': who: Objects of type object can't be encoded"),
    ],
)
def test_the_sender_learns_which_argument_is_wrong(args: Any, kwargs: Any, told: str) -> None:
    """A wrong call is refused before it is sent, and the error names the argument."""

    def job(order_id: int, who: Customer | None, others: Sequence[Customer] = (), *, note: str = "") -> None: ...

    with pytest.raises(InvalidArgument) as refused:
        of(job).encode(args, kwargs)
    assert re.search(told, refused.value.cause)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b'{"order_id":"7"}', "order_id: Expected `int`, got `str`"),
        (b"{}", "order_id: missing"),
        (b'{"order_id":7,"tenant":"x"}', "tenant: there is no such parameter"),
        (b"[7]", "Expected `object`"),
        (b"\xff", "malformed|invalid"),
    ],
)
def test_the_worker_learns_which_argument_is_wrong(payload: bytes, told: str) -> None:
    """A payload of another program is checked as well, and the error names the argument."""

    def job(order_id: int) -> None: ...

    with pytest.raises(InvalidArgument, match=told):
        of(job).decode(payload)


def test_a_message_as_the_first_parameter_is_not_sent() -> None:
    """A first parameter that is annotated as a message is no argument."""

    def job(message: WorkMessage, order_id: int) -> None: ...

    arguments = of(job)
    assert arguments.takes_message
    assert list(arguments.parameters) == ["order_id"]


def test_parameters_without_a_name_are_refused() -> None:
    """A function with *args or **kwargs can't be a task, and the error says so when it is registered."""

    def job(*args: int) -> None: ...

    with pytest.raises(InvalidArgument, match="every parameter of a task needs a name"):
        of(job)


def test_a_method_is_refused() -> None:
    """A method can't be a task, because a worker has no object to call it on."""

    class Mailer:
        def send(self, to: str) -> None: ...

    with pytest.raises(InvalidArgument, match="'job' is a method"):
        of(Mailer.send)


def test_a_type_that_cannot_be_sent_is_refused_at_once() -> None:
    """A parameter whose type has no encoding is refused when the task is registered, not when it is sent."""

    def job(either: Customer | Address) -> None: ...

    with pytest.raises(InvalidArgument, match="type that cannot be sent"):
        of(job)
