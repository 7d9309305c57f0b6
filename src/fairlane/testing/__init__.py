"""Test helpers for programs and store adapters that are built on Fairlane.

``fairlane.testing.store_machine`` is not imported here because it needs Hypothesis.
"""

from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.testing.faulty_store import Fault, Faults, FaultyStore
from fairlane.testing.harness import AppHarness
from fairlane.testing.messages import make_message, verdict
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.testing.store_contract import StoreContract
from fairlane.testing.traffic import Arrival, Traffic
from fairlane.testing.traffic_drive import Driven, drive, make_journal

__all__ = [
    "AppHarness",
    "Arrival",
    "Driven",
    "FakeClock",
    "Fault",
    "Faults",
    "FaultyStore",
    "Pending",
    "SeededEntropy",
    "SteppedBroker",
    "StoreContract",
    "Traffic",
    "drive",
    "make_journal",
    "make_message",
    "verdict",
]
