"""Who was noisy, and who got less than its share, hour by hour, by the definition of ``fairlane.model.noise``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fairlane.model.noise import noisy_keys, victims
from fairlane.report.hours import QueueHour, queue_hours
from fairlane.report.sections import Cell
from fairlane.report.tables import Tables

_Cells = tuple[Cell, ...]


def noisy(tables: Tables) -> list[_Cells]:
    """Return the tenants that were noisy in some hour, with the hour in which they were most."""
    return _worst(tables, lambda hour: {key: hour.loads[key].excess for key in noisy_keys(hour.loads)}, _demand)


def deprived(tables: Tables) -> list[_Cells]:
    """Return the tenants that got less than their share in some hour while another got more, with their worst hour."""
    return _worst(tables, lambda hour: {key: hour.loads[key].lack for key in victims(hour.loads)}, _shares)


def _worst(
    tables: Tables, judge: Callable[[QueueHour], dict[str, float]], cells_of: Callable[[str, QueueHour], _Cells]
) -> list[_Cells]:
    """Return a row for each tenant that is named in some hour: its worst hour, and the number of hours."""
    worst: dict[tuple[str, str], tuple[float, _Cells]] = {}
    hours: Counter[tuple[str, str]] = Counter()
    for hour in queue_hours(tables):
        for key, amount in judge(hour).items():
            who = (hour.queue, key)
            hours[who] += 1
            if who not in worst or amount > worst[who][0]:
                worst[who] = (amount, (hour.hour_ms, *cells_of(key, hour)))
    return [(*who, hours[who], *cells) for who, (_, cells) in worst.items()]


def _demand(key: str, hour: QueueHour) -> _Cells:
    load, wanted = hour.loads[key], sum(load.wanted for load in hour.loads.values())
    refused = hour.refused.get(key, 0)
    return (load.wanted / wanted, round(load.wanted / load.share, 1), *_shares(key, hour), refused)


def _shares(key: str, hour: QueueHour) -> _Cells:
    """Return the parts of the service that a tenant received and was entitled to."""
    served = sum(load.served for load in hour.loads.values())
    return hour.loads[key].served / served, hour.loads[key].entitled / served
