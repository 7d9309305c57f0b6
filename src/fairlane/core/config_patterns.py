"""Patterns in config keys: one value for every throttle, or every fairness key of a queue, whose name begins so.

A pattern is a prefix followed by a star, or a star for all names, as in rights. An exact name takes precedence over
every pattern, and a longer prefix over a shorter one. ``QUEUE`` may be a star, too: with the same pattern for the key,
a config key that names the queue takes precedence over one that does not.

A star stands for the rest of one name. So ``cap:orders:*`` is about each tenant, that is each outermost key, and
``cap:orders:acme/*`` about each sub-key of ``acme``.

Lookups don't depend on how many patterns there are, but on how many lengths their prefixes have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlane.core.checks import text_fault
from fairlane.model import limits
from fairlane.model.message import Key, key_text
from fairlane.model.names import is_dlq, queue_name_fault
from fairlane.verbs.keys import EVERY

THROTTLE_PREFIX: Final = "throttle:"
THROTTLE_SETTINGS: Final = ("rate", "burst", "charge")
KEY_SETTINGS: Final = ("weight", "cap", "floor", "rate", "burst", "charge")
"""What can be set for a fairness key, as ``SETTING:QUEUE:KEY``."""


class PrefixTable:
    """Values by prefix, of which the longest that fits is found."""

    __slots__ = ("_lengths", "values")

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._lengths: list[int] = []

    def set(self, prefix: str, value: str | None) -> None:
        """Set a value, or with None remove it."""
        self.values.pop(prefix, None)
        if value is not None:
            self.values[prefix] = value
        self._lengths = sorted({len(known) for known in self.values}, reverse=True)

    def find(self, name: str, *, least: int = 0) -> str | None:
        """Return the longest prefix of a name that has a value, and at least ``least`` characters; None for none."""
        for length in self._lengths:
            if least <= length <= len(name) and name[:length] in self.values:
                return name[:length]
        return None


class ConfigPatterns:
    """All patterns of a config."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._tables: dict[str, PrefixTable] = {}
        for key, value in config.items():
            self.follow(key, value)

    def follow(self, key: str, value: str | None) -> None:
        """Take note of a config value that has been set or, with None, removed."""
        found = _scope_and_prefix(key)
        if found is not None:
            scope, prefix = found
            self._tables.setdefault(scope, PrefixTable()).set(prefix, value)

    def throttle_pattern(self, name: str, setting: str) -> tuple[str, str] | None:
        """Return the pattern that a throttle gets a setting from, and the value; None for none."""
        table = self._tables.get(THROTTLE_PREFIX + setting)
        prefix = None if table is None else table.find(name)
        return None if table is None or prefix is None else (prefix + EVERY, table.values[prefix])

    def throttle_patterns(self) -> list[str]:
        """Return the patterns of throttles that have a rate."""
        table = self._tables.get(f"{THROTTLE_PREFIX}rate")
        return [] if table is None else [prefix + EVERY for prefix in table.values]

    def of_key(self, setting: str, queue: str, key: Key) -> str | None:
        """Return what patterns say about a setting of a key; None for nothing. Dead-letter queues have no patterns."""
        if is_dlq(queue):
            return None
        name = key_text(key)
        said = self._config.get(f"{setting}:{EVERY}:{name}")
        if said is not None or not self._tables:
            return said
        least = 0 if isinstance(key, str) else len(name) - len(key[-1])  # a star stands for the rest of the last name
        found: list[tuple[int, str]] = []
        for scope in (f"{setting}:{queue}", f"{setting}:{EVERY}"):
            table = self._tables.get(scope)
            prefix = None if table is None else table.find(name, least=least)
            if table is not None and prefix is not None:
                found.append((len(prefix), table.values[prefix]))
        return max(found, key=lambda each: each[0])[1] if found else None


def _scope_and_prefix(key: str) -> tuple[str, str] | None:
    """Return what a config key is a setting of, and the prefix that it is for; None if it is no pattern."""
    if key.startswith(THROTTLE_PREFIX):
        name, _, setting = key[len(THROTTLE_PREFIX) :].rpartition(":")
        return (THROTTLE_PREFIX + setting, name[:-1]) if name.endswith(EVERY) else None
    setting, _, rest = key.partition(":")
    queue, _, name = rest.partition(":")
    return (f"{setting}:{queue}", name[:-1]) if setting in KEY_SETTINGS and name.endswith(EVERY) else None


def pattern_fault(what: str, pattern: str, *, most: int) -> str | None:
    """Return why a pattern of a name can match nothing, or None if it can."""
    if EVERY in pattern[:-1]:
        return f"{what} must be a name, a prefix followed by a star, or a star, not {pattern!r:.100}."
    prefix = pattern.removesuffix(EVERY)
    if len(prefix) > most:
        return (
            f"{what} {pattern!r:.100} cannot match anything: names have at most {most} characters, not {len(prefix)}."
        )
    return text_fault(what, prefix, most=most) if prefix else None


def key_pattern_fault(queue: str, pattern: str) -> str | None:
    """Return why a pattern of a fairness key of a queue can match nothing, or None if it can."""
    fault = None if queue == EVERY else queue_name_fault(queue)
    if fault is None and is_dlq(queue):
        fault = f"Patterns don't apply to dead-letter queues such as {queue}. Name the fairness key."
    if fault is None:
        fault = pattern_fault("The pattern of a fairness key", pattern, most=limits.KEY_LENGTH_MAX)
    path = pattern.split("/")
    if fault is None and (not all(path[:-1]) or len(path) > limits.KEY_DEPTH_MAX):
        fault = f"The pattern {pattern!r:.100} cannot match anything: a path has 1 to {limits.KEY_DEPTH_MAX} names."
    return fault
