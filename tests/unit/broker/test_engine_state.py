"""The engine's states: the table is complete, the engine follows it, and the docs show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.engine.state import RUNNING, TRANSITIONS, Event, State, after, diagram
from fairlane.errors import FairlaneError, StoreFenced
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.brokers import MoodyStore
from tests.unit.broker.stepping import broker_with

ROOT = Path(__file__).parents[3]
FINAL = {State.FENCED, State.CLOSED}


def state_of(broker: SteppedBroker) -> State:
    """Return the state of a broker's engine now."""
    return broker.engine.state


def test_every_state_can_be_reached_and_closed() -> None:
    """From NEW every state is reached, and from every state the engine can be closed and can fail."""
    reached = {State.NEW}
    for _ in State:
        reached |= {following for (state, _), following in TRANSITIONS.items() if state in reached}
    assert reached == set(State)
    assert all(after(state, Event.CLOSE) is State.CLOSED for state in State)
    assert all((state, Event.FAIL) in TRANSITIONS for state in State)


def test_a_final_state_never_decides_anything_again() -> None:
    """No event leads from a fenced or closed engine back to one that decides requests."""
    assert not {following for (state, _), following in TRANSITIONS.items() if state in FINAL} - FINAL
    assert not FINAL & set(RUNNING)


def test_an_event_that_is_not_in_the_table_is_a_bug() -> None:
    """A closed engine can't recover: asking for that raises instead of doing something undefined."""
    with pytest.raises(AssertionError, match="RECOVER can't happen to an engine that is CLOSED"):
        after(State.CLOSED, Event.RECOVER)


def test_an_engine_is_recovered_until_its_first_commit() -> None:
    """Opening recovers; the commit of the first cycle shows that the store takes commits."""
    broker = broker_with()
    assert state_of(broker) is State.UP
    broker.reopen()
    assert state_of(broker) is State.RECOVERED
    broker.step()
    assert state_of(broker) is State.UP
    broker.close()
    assert state_of(broker) is State.CLOSED


def test_a_failed_commit_leads_through_down_to_recovered() -> None:
    """A cycle whose sync fails is refused, and the engine has read the journal again before the next one."""
    store = MoodyStore()
    broker = broker_with(store=store)
    store.at_sync = OSError("disk")
    with pytest.raises(FairlaneError):
        broker.enqueue("q", b"lost")
    assert state_of(broker) is State.RECOVERED
    assert broker.enqueue("q", b"kept")
    assert state_of(broker) is State.UP


def test_a_fenced_engine_refuses_everything_and_stays_fenced() -> None:
    """Once another process has the store, no cycle tries to open it again."""

    class FencedStore(MemoryStore):
        """A store that another process takes over."""

        is_taken = False
        openings = 0

        def check_owned(self) -> None:
            if self.is_taken:
                raise StoreFenced("Another process has the store.")

        def recover(self):  # type: ignore[no-untyped-def] # noqa: ANN202 - as the store's own
            self.openings += 1
            self.check_owned()
            return super().recover()

    store = FencedStore()
    broker = broker_with(store=store)
    store.is_taken = True
    for _ in range(3):
        with pytest.raises(StoreFenced):
            broker.enqueue("q", b"")
    assert state_of(broker) is State.FENCED
    assert store.openings == 2
    assert broker.engine.next_event_at() is None


def test_the_docs_show_the_table() -> None:
    """docs/architecture.md has the diagram that the table draws."""
    script = [sys.executable, str(ROOT / "tools" / "draw_states.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert diagram() in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
