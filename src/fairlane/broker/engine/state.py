"""The states of the engine, and everything that can change them.

A request is decided in ``UP`` and ``RECOVERED`` only. The two differ in one thing: in ``RECOVERED`` no commit has shown
yet that the store takes one, so the first cycle writes down that the broker was opened, and what the broker asks of
itself waits while failures repeat.

The table below is the whole truth: an event that is not in it for a state is a bug, and raises. The diagram in
``docs/architecture.md`` is drawn from it by ``tools/draw_states.py``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """What the engine can do now."""

    NEW = "The store has not been read yet."
    RECOVERED = "Memory is what the store holds; no cycle has been committed since."
    UP = "Memory is what the store holds, and commits succeed."
    DOWN = "Memory may differ from the store; the next cycle recovers before it decides anything."
    FENCED = "The store belongs to another process, or failed where this engine may not reopen it. Final."
    CLOSED = "The broker was closed. Final."


class Event(Enum):
    """What happens to the engine."""

    RECOVER = "the journal was folded"
    CONFIRM = "a commit is durable"
    FAIL = "a cycle failed, or was interrupted, or the store has to be opened again"
    FENCE = "another process took the store over"
    CLOSE = "the broker is closed"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.NEW, Event.RECOVER): State.RECOVERED,
    (State.NEW, Event.FAIL): State.NEW,
    (State.NEW, Event.FENCE): State.FENCED,
    (State.NEW, Event.CLOSE): State.CLOSED,
    (State.RECOVERED, Event.CONFIRM): State.UP,
    (State.RECOVERED, Event.FAIL): State.DOWN,
    (State.RECOVERED, Event.CLOSE): State.CLOSED,
    (State.UP, Event.CONFIRM): State.UP,
    (State.UP, Event.FAIL): State.DOWN,
    (State.UP, Event.CLOSE): State.CLOSED,
    (State.DOWN, Event.RECOVER): State.RECOVERED,
    (State.DOWN, Event.FAIL): State.DOWN,
    (State.DOWN, Event.FENCE): State.FENCED,
    (State.DOWN, Event.CLOSE): State.CLOSED,
    (State.FENCED, Event.FAIL): State.FENCED,
    (State.FENCED, Event.CLOSE): State.CLOSED,
    (State.CLOSED, Event.FAIL): State.CLOSED,
    (State.CLOSED, Event.CLOSE): State.CLOSED,
}

RUNNING: Final = (State.UP, State.RECOVERED)
"""The states in which a cycle decides requests."""


def after(state: State, event: Event) -> State:
    """Return the state that follows. Raises AssertionError if the event can't happen in this state, which is a bug."""
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise AssertionError(f"{event.name} can't happen to an engine that is {state.name}.")
    return following


def diagram() -> str:
    """Return the table as a Mermaid state diagram; events that change nothing are left out."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.NEW.name}"]
    lines += [
        f"    {state.name} --> {following.name}: {event.value}"
        for (state, event), following in TRANSITIONS.items()
        if following is not state and event is not Event.CLOSE
    ]
    open_states = [state for state in State if state is not State.CLOSED]
    lines += [f"    {state.name} --> {State.CLOSED.name}: {Event.CLOSE.value}" for state in open_states]
    lines += [f"    {State.CLOSED.name} --> [*]"]
    return "\n".join(lines)
