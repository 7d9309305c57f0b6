"""Throttles as config has them: rate, burst and charge of ``throttle:NAME``, and ``throttle_weight:QUEUE:NAME``.

``NAME`` may be a pattern, see ``config_patterns``. Each setting of a throttle is looked up by itself: its exact name
first, then the patterns. A throttle that has a setting under its own name is in the table all the time; one that has
all of them from patterns is made when a message names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fairlane.core.config_patterns import THROTTLE_PREFIX, THROTTLE_SETTINGS, ConfigPatterns
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.token_bucket import Limit
from fairlane.verbs.config import BY_COST
from fairlane.verbs.keys import EVERY

THROTTLE_WEIGHT_PREFIX = "throttle_weight:"


def throttle_names(config_keys: Iterable[str]) -> list[str]:
    """Return the throttles, and the patterns of throttles, that config keys speak of, each once."""
    keys = (key[len(THROTTLE_PREFIX) :] for key in config_keys if key.startswith(THROTTLE_PREFIX))
    return list(dict.fromkeys(name for key in keys if (name := key.rpartition(":")[0])))


def throttle_weights(config_keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the config keys that are weights of queues in throttles, each with queue and throttle."""
    for key in config_keys:
        if key.startswith(THROTTLE_WEIGHT_PREFIX):
            queue, _, throttle = key[len(THROTTLE_WEIGHT_PREFIX) :].partition(":")
            if queue and throttle:
                yield key, queue, throttle


class ThrottleConfig:
    """What config says about throttles."""

    __slots__ = ("_config", "_families", "_patterns")

    def __init__(self, config: Mapping[str, str], patterns: ConfigPatterns) -> None:
        self._config = config
        self._patterns = patterns
        self._families: dict[str, Limit] = {}

    def limit(self, name: str) -> Limit | None:
        """Return the limit of a throttle; None without a rate."""
        return self._limit({setting: self._setting(name, setting) for setting in THROTTLE_SETTINGS})

    def _setting(self, name: str, setting: str) -> tuple[str, str] | None:
        """Return the name or the pattern that a setting comes from, and its value."""
        said = self._config.get(f"{THROTTLE_PREFIX}{name}:{setting}")
        return self._patterns.throttle_pattern(name, setting) if said is None else (name, said)

    def _limit(self, found: Mapping[str, tuple[str, str] | None]) -> Limit | None:
        rate, burst, charge = (found[setting] for setting in THROTTLE_SETTINGS)
        if rate is None:
            return None
        charges_cost = charge is not None and charge[1] == BY_COST
        return Limit(float(rate[1]), None if burst is None else float(burst[1]), charges_cost, family=rate[0])

    def patterns(self, prefix: str = "") -> Iterator[tuple[str, Limit]]:
        """Yield the patterns that have a rate, each with the limit of a throttle that nothing else is set for.

        With a prefix only those whose names begin with it.
        """
        for pattern in self._patterns.throttle_patterns():
            name = pattern.removesuffix(EVERY)
            if not name.startswith(prefix):
                continue
            found = {setting: self._patterns.throttle_pattern(name, setting) for setting in THROTTLE_SETTINGS}
            limit = self._limit(found)
            if limit is not None:
                yield pattern, limit

    def begin(self, throttles: Throttles, *, now_ms: int, tokens: float | None) -> None:
        """Fill a table with all throttles, which have ``tokens`` to begin with; None for full ones."""
        self._families = dict(self.patterns())
        for pattern in () if tokens is None else self._families:
            throttles.begin_empty(pattern, now_ms=now_ms)
        for name in throttle_names(self._config):
            self._set(throttles, name, now_ms, tokens)
        throttles.set_provider(self.limit, now_ms=now_ms)

    def follow(self, throttles: Throttles, name: str, *, now_ms: int) -> None:
        """Bring a table up to date after a setting of a throttle, or of a pattern of them, has changed."""
        if not name.endswith(EVERY):
            self._set(throttles, name, now_ms, None)
            return
        prefix = name.removesuffix(EVERY)
        self._follow_families(throttles, prefix, now_ms)
        for other in throttle_names(self._config):
            if other.startswith(prefix):
                self._set(throttles, other, now_ms, None)
        throttles.refresh(prefix, now_ms=now_ms)

    def _follow_families(self, throttles: Throttles, prefix: str, now_ms: int) -> None:
        before = {name: limit for name, limit in self._families.items() if name.startswith(prefix)}
        after = dict(self.patterns(prefix))
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                throttles.change_family(name, before.get(name), after.get(name), now_ms=now_ms)
                self._families.pop(name, None)
        self._families |= after

    def _set(self, throttles: Throttles, name: str, now_ms: int, tokens: float | None) -> None:
        if name.endswith(EVERY):
            return
        limit, known = self.limit(name), throttles.get(name)
        has_own = any(f"{THROTTLE_PREFIX}{name}:{setting}" in self._config for setting in THROTTLE_SETTINGS)
        if limit is None or not has_own:
            throttles.remove(name, now_ms=now_ms)
        elif known is None or not known.is_set or not known.has(limit):
            rate, burst, charges_cost, _ = limit
            throttles.set(name, rate=rate, burst=burst, tokens=tokens, charges_cost=charges_cost, now_ms=now_ms)
