"""Journals for the tests of what-if: made once, by real traffic through a real broker on a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from fairlane.assembly import export_journal
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.settings import Settings
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.measures import KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.scenario import Scenario
from fairlane.testing.stepped import SteppedBroker

MINUTE_MS = 60_000


def stepped_broker() -> SteppedBroker:
    """Return a broker on a fake clock whose journal can be exported by ``exported``."""
    return SteppedBroker(settings=Settings(segment_ms=MINUTE_MS))


def exported(broker: SteppedBroker, folder: Path) -> Path:
    """Seal the last segment, export all segments, and return the folder."""
    broker.clock.advance(MINUTE_MS)
    broker.step()
    export_journal(cast("Broker", broker), folder)
    return folder


def measured(recording: Recording, scenario: Scenario) -> Mapping[str, KeyMeasures]:
    """Return the keys of a recording's first queue under a scenario."""
    played = play(recording, scenario, messages_of(recording))
    found = Yardstick(recording, MeasuredPeriod()).measure(0, played)
    return {one.key: one for one in found if one.queue == recording.queues[0]}
