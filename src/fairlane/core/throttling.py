"""Throttles as config has them: ``throttle:NAME:rate`` and ``throttle:NAME:burst``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlane.scheduler.buckets import Throttles

_PREFIX = "throttle:"


def throttle_names(config_keys: Iterable[str]) -> list[str]:
    """Return the throttles that config keys speak of, each once."""
    names = (key[len(_PREFIX) :].rpartition(":")[0] for key in config_keys if key.startswith(_PREFIX))
    return list(dict.fromkeys(name for name in names if name))


def set_throttle(
    throttles: Throttles, config: Mapping[str, str], name: str, *, now_ms: int, tokens: float | None = None
) -> None:
    """Set a throttle to what config says now; without a rate there is none."""
    rate, burst = config.get(f"{_PREFIX}{name}:rate"), config.get(f"{_PREFIX}{name}:burst")
    if rate is None:
        throttles.remove(name, now_ms=now_ms)
        return
    throttles.set(name, rate=float(rate), burst=None if burst is None else float(burst), tokens=tokens, now_ms=now_ms)
