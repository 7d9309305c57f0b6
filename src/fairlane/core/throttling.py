"""Throttles as config has them: ``throttle:NAME:rate``, ``throttle:NAME:burst`` and ``throttle_weight:QUEUE:NAME``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlane.scheduler.buckets import Throttles

_PREFIX = "throttle:"
THROTTLE_WEIGHT_PREFIX = "throttle_weight:"


def throttle_names(config_keys: Iterable[str]) -> list[str]:
    """Return the throttles that config keys speak of, each once."""
    names = (key[len(_PREFIX) :].rpartition(":")[0] for key in config_keys if key.startswith(_PREFIX))
    return list(dict.fromkeys(name for name in names if name))


def throttle_weights(config_keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the config keys that are weights of queues in throttles, each with queue and throttle."""
    for key in config_keys:
        if key.startswith(THROTTLE_WEIGHT_PREFIX):
            queue, _, throttle = key[len(THROTTLE_WEIGHT_PREFIX) :].partition(":")
            if queue and throttle:
                yield key, queue, throttle


def set_throttle(
    throttles: Throttles, config: Mapping[str, str], name: str, *, now_ms: int, tokens: float | None = None
) -> None:
    """Set a throttle to what config says now; without a rate there is none."""
    rate, burst = config.get(f"{_PREFIX}{name}:rate"), config.get(f"{_PREFIX}{name}:burst")
    if rate is None:
        throttles.remove(name, now_ms=now_ms)
        return
    throttles.set(name, rate=float(rate), burst=None if burst is None else float(burst), tokens=tokens, now_ms=now_ms)
