"""Who was noisy in a period, and who got less than its share, by the definition of ``fairlane.model.noise``."""

from __future__ import annotations

from collections import defaultdict

from fairlane.model.noise import KeyLoad, demand, noisy_keys, victims
from fairlane.report.rollups import grouped, latest_weights
from fairlane.report.sections import Cell
from fairlane.report.tables import Tables

_PLACE = ("queue", "top_key")


def _loads_by_queue(tables: Tables) -> dict[str, dict[str, KeyLoad]]:
    """Return what each tenant wanted and got over the period, by queue."""
    served = grouped(tables, "fairness_keys", _PLACE, {"served_cost": "sum", "entitled_cost": "sum"})
    wanted = grouped(tables, "tenant_usage", _PLACE, {"enqueued_cost": "sum", "refused_cost": "sum"})
    weights = latest_weights(tables)
    capacity: dict[str, float] = defaultdict(float)
    weight: dict[str, int] = defaultdict(int)
    for (queue, key), (cost, _) in served.items():
        capacity[queue] += cost
        weight[queue] += weights[queue, key]
    found: dict[str, dict[str, KeyLoad]] = defaultdict(dict)
    for (queue, key), (cost, entitled) in served.items():
        arrived, refused = wanted.get((queue, key), (0, 0))
        found[queue][key] = KeyLoad(
            wanted=demand(arrived=arrived, served=cost, refused=refused),
            served=cost,
            entitled=entitled,
            part=capacity[queue] * weights[queue, key] / (weight[queue] or 1),
        )
    return found


def noisy(tables: Tables) -> list[tuple[Cell, ...]]:
    """Return the tenants that wanted far more than their share while others did not."""
    refused = grouped(tables, "tenant_usage", _PLACE, {"refused_cost": "sum"})
    rows: list[tuple[Cell, ...]] = []
    for queue, loads in _loads_by_queue(tables).items():
        served, wanted = (sum(getattr(load, name) for load in loads.values()) for name in ("served", "wanted"))
        for key in noisy_keys(loads):
            load = loads[key]
            parts = (load.wanted / wanted, round(load.wanted / load.share, 1), load.served / served)
            rows.append((queue, key, *parts, load.entitled / served, refused.get((queue, key), (0,))[0]))
    return rows


def deprived(tables: Tables) -> list[tuple[Cell, ...]]:
    """Return the tenants that got less than their share while another got more."""
    rows: list[tuple[Cell, ...]] = []
    for queue, loads in _loads_by_queue(tables).items():
        served = sum(load.served for load in loads.values())
        rows += [(queue, key, loads[key].served / served, loads[key].entitled / served) for key in victims(loads)]
    return rows
