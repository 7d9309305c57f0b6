"""The broker keeps its rules under every interleaving of its verbs, reopenings and time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.broker.machine import BrokerMachine


def test_the_broker_agrees_with_the_naive_model_and_with_its_journal_after_every_verb() -> None:
    """The content equals the model's, the ledger is the fold of the journal, and illegal transitions change nothing."""
    run_state_machine_as_test(BrokerMachine, settings=settings(max_examples=80, stateful_step_count=40, deadline=None))
