"""A noisy neighbour is tuned away on a live broker, and a change that turns out badly is rolled back.

The broker runs on virtual time, so five minutes of traffic pass in seconds. Run it with ``python examples/tune.py``.
It needs ``fairlane[spark]``, and does not start Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from fairlane.spark.tune.rounds import TuneOptions
from fairlane.spark.tune.search import Search, search
from fairlane.spark.tune.tuner import Tuner
from fairlane.spark.whatif.advice import Tried
from fairlane.spark.whatif.comparison import Comparison, Journal
from fairlane.spark.whatif.targets import Target, target_of
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Arrival
from fairlane.testing.traffic_drive import LiveTraffic

WINDOW_MS = 60_000
BURST_MS = 20_000
SERVICE_MS = 350
BURSTS = {"noisy": 60, "bakery": 20, "clinic": 20, "acme": 13}
"""How many messages each tenant sends every 20 seconds. Four consumers need eleven seconds for them."""


def burst(chance: random.Random, sizes: dict[str, int]) -> list[Arrival]:
    """Return what all tenants send within one second."""
    sent = sorted((chance.randrange(1_000), key) for key, size in sizes.items() for _ in range(size))
    return [
        Arrival(at_ms=at_ms, fairness_key=key, cost=1, true_cost=1, service_ms=SERVICE_MS + chance.randrange(50))
        for at_ms, key in sent
    ]


def bad_search(_journal: Journal, known: Comparison, targets: Sequence[Target], **_given: object) -> Search:
    """Propose the worst instead of the best, and claim that it meets the targets."""
    values: dict[str, str | None] = {"weight:work:noisy": "50"}
    claimed = [0.0 for _ in targets]
    proposal = Tried(
        name="a bad idea", values=claimed, is_met=True, lack=0, left=0, cost_ms=0, changes=1, config=values
    )
    return Search(proposal=proposal, tried=[proposal], error=known.errors[0])


def main() -> None:
    """Run both stories."""
    broker = SteppedBroker()
    broker.create_queue("work")
    traffic, chance = LiveTraffic(broker, queue="work", consumers=4), random.Random(1)

    def wait(span_ms: int) -> None:
        for begin_ms in range(0, span_ms, BURST_MS):
            traffic.send(burst(chance, BURSTS), for_ms=min(BURST_MS, span_ms - begin_ms))

    def tune(title: str, target: str, propose: Callable[..., Search] = search) -> None:
        print(title)
        options = TuneOptions(queue="work", targets=(target_of(target),), window_ms=WINDOW_MS)
        done = Tuner(broker, options, wait=wait, propose=propose).round()
        waits = [f"{name} {round(values[0])} ms" for name, values in told(done.before, done.after)]
        print(f"  {target}: {', '.join(waits)}")
        print(f"  {done.outcome.replace('_', ' ')} {done.changes}: {done.why}\n")

    wait(WINDOW_MS)
    tune("Messages of acme wait behind the bursts of a noisy neighbour.", "wait_p99:acme<=2s")
    tune("A proposal that is bad, although it was said to be good.", "wait_p99:acme<=1s", bad_search)
    print("Changes of settings in the journal:")
    for event in broker.read_journal(0, count=100_000).events:
        if event["kind"] == "config_set":
            print(f"  {event['name']} = {event.get('value')}  by {event['owner']}: {event['reason']}")


def told(*values: list[float] | None) -> list[tuple[str, list[float]]]:
    """Return the measurements that there are, by name."""
    return [(name, found) for name, found in zip(("before", "after"), values, strict=True) if found is not None]


if __name__ == "__main__":
    main()
