"""Frames are cut and made as the WebSocket protocol says, with ``websockets`` as the judge."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from fairlane.wire.framing import FrameCutter, head_of, masked_frame_of

SIZES = [0, 1, 125, 126, 127, 65_535, 65_536, 70_001]


class Cut:
    """What a cutter handed on."""

    def __init__(self, *, is_masked: bool = True, size_max: int | None = None, hold_after: int = 0) -> None:
        self.messages: list[bytes] = []
        self.others: list[bytes] = []
        self._hold_after = hold_after
        self.cutter = FrameCutter(
            is_masked=is_masked, size_max=size_max, on_message=self._take, on_other=self.others.append
        )

    def _take(self, message: bytes) -> None:
        self.messages.append(message)
        if len(self.messages) == self._hold_after:
            self.cutter.is_held = True


def spoken(side: Side, data: bytes) -> list[bytes]:
    """Return the binary messages that ``websockets`` finds on the other side of what a side sends."""
    other = Protocol(Side.SERVER if side is Side.CLIENT else Side.CLIENT, state=State.OPEN, max_size=None)
    other.receive_data(data)
    events = other.events_received()
    assert other.parser_exc is None
    return [bytes(event.data) for event in events if isinstance(event, Frame) and event.opcode is Opcode.BINARY]


def framed(*frames: Frame, mask: bool = True) -> bytes:
    """Return frames as ``websockets`` writes them."""
    return b"".join(bytes(frame.serialize(mask=mask)) for frame in frames)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", [bytes(4), b"\x01\x80\xff\x33"])
def test_what_is_made_is_understood(size: int, mask: bytes) -> None:
    """Messages of both sides, of every length that is written differently, masked with zeros and otherwise."""
    message = bytes(at % 251 for at in range(size))
    assert spoken(Side.CLIENT, masked_frame_of(message, mask)) == [message]
    assert spoken(Side.SERVER, head_of(size) + message) == [message]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_masked", [True, False])
def test_what_is_understood_is_cut(size: int, *, is_masked: bool) -> None:
    """Messages that another implementation wrote are handed on as they were."""
    message = bytes(at % 251 for at in range(size))
    cut = Cut(is_masked=is_masked)
    cut.cutter.receive(framed(Frame(Opcode.BINARY, message), mask=is_masked) * 2)
    assert (cut.messages, cut.others) == ([message, message], [])


@pytest.mark.parametrize("step", [1, 2, 3, 7, 131])
def test_pieces_are_put_together(step: int) -> None:
    """Whatever pieces the network makes of frames, the same messages come, and other frames come whole."""
    frames = [
        Frame(Opcode.BINARY, b"a" * 130),
        Frame(Opcode.PING, b"?"),
        Frame(Opcode.BINARY, b""),
        Frame(Opcode.BINARY, b"b" * 300),
    ]
    data = framed(*frames)
    cut = Cut()
    for at in range(0, len(data), step):
        cut.cutter.receive(data[at : at + step])
    assert cut.messages == [b"a" * 130, b"", b"b" * 300]
    assert [len(other) for other in cut.others] == [len(framed(frames[1]))]


def test_a_message_in_parts_and_all_within_it_is_handed_on() -> None:
    """From its first part to its last nothing is cut but handed on, so that order and faults are judged by one."""
    parts = [
        Frame(Opcode.BINARY, b"x", fin=False),
        Frame(Opcode.PING, b""),
        Frame(Opcode.BINARY, b"not now"),
        Frame(Opcode.CONT, b"y", fin=False),
        Frame(Opcode.CONT, b"z"),
    ]
    cut = Cut()
    cut.cutter.receive(framed(parts[0], parts[1], parts[3], parts[4], Frame(Opcode.BINARY, b"after")))
    assert (len(cut.others), cut.messages) == (4, [b"after"])
    confused = Cut()
    confused.cutter.receive(framed(parts[0], parts[2]))
    assert (len(confused.others), confused.messages) == (2, [])


@pytest.mark.parametrize(
    "data",
    [
        framed(Frame(Opcode.BINARY, b"x"), mask=False),
        framed(Frame(Opcode.TEXT, b"x")),
        b"\xc2" + framed(Frame(Opcode.BINARY, b"x"))[1:],
        b"\x83" + framed(Frame(Opcode.BINARY, b"x"))[1:],
    ],
    ids=["unmasked", "text", "reserved bit", "unknown opcode"],
)
def test_what_is_not_plain_is_left_to_others(data: bytes) -> None:
    """Unmasked, text, with bits that mean nothing, of an unknown kind: it is handed on, byte for byte."""
    cut = Cut()
    cut.cutter.receive(data)
    assert (cut.messages, cut.others) == ([], [data])


def test_a_message_that_is_too_long_is_handed_on_at_once() -> None:
    """Nobody waits for its end, or keeps what came of it."""
    data = framed(Frame(Opcode.BINARY, b"x" * 2_000))
    cut = Cut(size_max=1_000)
    cut.cutter.receive(data[:10])
    assert cut.others == [data[:10]]
    short = Cut(size_max=2_000)
    short.cutter.receive(data)
    assert short.messages == [b"x" * 2_000]


def test_what_comes_while_it_is_held_is_kept() -> None:
    """After a message that holds it nothing is handed on, and then everything, in order."""
    frames = [framed(Frame(Opcode.BINARY, text)) for text in (b"one" * 99, b"two", b"three")]
    cut = Cut(hold_after=1)
    cut.cutter.receive(frames[0][:50])
    cut.cutter.receive(frames[0][50:] + frames[1][:4])
    cut.cutter.receive(frames[1][4:] + frames[2])
    assert cut.messages == [b"one" * 99]
    cut.cutter.go_on()
    assert cut.messages == [b"one" * 99, b"two", b"three"]
