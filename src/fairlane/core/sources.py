"""Declared keys: where a queue's policy takes fairness key, weight, cost, priority, cap and throttles from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fairlane.model.limits import CAP_MAX, COST_MAX, KEY_LENGTH_MAX, THROTTLE_NAME_LENGTH_MAX, WEIGHT_MAX
from fairlane.model.message import PRIORITY_NAMES, Key
from fairlane.model.policy import QueuePolicy

Headers = Mapping[str, str]
Source = Callable[[Headers], str | None]

_HEADER = "header:"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NORMAL = PRIORITY_NAMES.index("normal")
_PRIORITIES = {name: at for at, name in enumerate(PRIORITY_NAMES)} | {"0": 0, "1": 1, "2": 2}


class Declared:
    """What a policy declares, ready to be asked of headers. Each answer is None where nothing usable was declared."""

    def __init__(self, policy: QueuePolicy) -> None:
        keys = policy.fairness_key_from
        path = () if keys is None else (keys,) if isinstance(keys, str) else keys
        self._key = tuple(_source(text) for text in path)
        self._weight = _optional(policy.weight_from)
        self._cost = _optional(policy.cost_from)
        self._priority = _optional(policy.priority_from)
        self._cap = _optional(policy.cap_from)
        self._throttles = tuple(_source(text) for text in policy.throttles_from)
        self._names_weight = bool(_headers_in(policy.weight_from))
        self._names_priority = bool(_headers_in(policy.priority_from))
        tenant = _only_header(path[0]) if path else None
        named = {text: set(_headers_in(text)) for text in policy.throttles_from if _headers_in(text)}
        self._named_throttles = tuple(_source(text) for text, names in named.items() if names != {tenant})
        self._tenant_throttles = tuple(_source(text) for text, names in named.items() if names == {tenant})
        self.has_key = bool(self._key)
        self.has_weight = self._weight is not None
        self.has_cost = self._cost is not None
        self.has_priority = self._priority is not None
        self.has_cap = self._cap is not None
        self.has_throttles = bool(self._throttles)
        singles = self.has_weight or self.has_cost or self.has_priority or self.has_cap
        self.is_empty = not (self.has_key or self.has_throttles or singles)

    def key(self, headers: Headers) -> Key | None:
        """Return the fairness key: as much of the path as the headers have, from its beginning."""
        sources = self._key
        if len(sources) == 1:
            name = sources[0](headers)
            return name[:KEY_LENGTH_MAX] if name else None
        names: list[str] = []
        for source in sources:
            name = source(headers)
            if not name:
                break
            names.append(name[: KEY_LENGTH_MAX // len(sources)])
        return (names[0] if len(names) == 1 else tuple(names)) if names else None

    def weight(self, headers: Headers) -> int | None:
        """Return the weight of the key, brought within its limits."""
        return _whole(self._weight, headers, least=1, most=WEIGHT_MAX)

    def cost(self, headers: Headers) -> int | None:
        """Return the cost of the message, brought within its limits."""
        return _whole(self._cost, headers, least=1, most=COST_MAX)

    def cap(self, headers: Headers) -> int | None:
        """Return the cap of the key, brought within its limits."""
        return _whole(self._cap, headers, least=0, most=CAP_MAX)

    def priority(self, headers: Headers) -> int | None:
        """Return the priority of the message."""
        name = None if self._priority is None else self._priority(headers)
        return None if name is None else _PRIORITIES.get(name.strip().lower())

    def throttles(self, headers: Headers) -> list[str]:
        """Return the throttles of the message."""
        return _names(self._throttles, headers)

    # What headers decide, the producer decides. These matter for producers that may not decide everything.

    def names_weight(self, headers: Headers) -> bool:
        """Return whether the headers set the weight."""
        return self._names_weight and self.weight(headers) is not None

    def names_priority(self, headers: Headers) -> bool:
        """Return whether the headers set a priority other than the normal one."""
        return self._names_priority and self.priority(headers) not in (None, _NORMAL)

    def named_throttles(self, headers: Headers, key: Key) -> list[str]:
        """Return the throttles that headers decide, except those that follow from the header of the key."""
        names = _names(self._named_throttles, headers)
        if self._tenant_throttles and self.key(headers) != key:  # the hook has chosen another key than the header's
            names += _names(self._tenant_throttles, headers)
        return names


def _names(sources: tuple[Source, ...], headers: Headers) -> list[str]:
    names = (source(headers) for source in sources)
    return [name[:THROTTLE_NAME_LENGTH_MAX] for name in names if name]


def _headers_in(text: str | None) -> list[str]:
    """Return the headers that a source depends on."""
    if text is None:
        return []
    return [text[len(_HEADER) :]] if text.startswith(_HEADER) else _PLACEHOLDER.findall(text)


def _only_header(text: str) -> str | None:
    """Return the header whose value a source is, as it is; None if the source is anything else."""
    names = _headers_in(text)
    return names[0] if names and text in (f"{_HEADER}{names[0]}", f"{{{names[0]}}}") else None


def _optional(text: str | None) -> Source | None:
    return None if text is None else _source(text)


def _source(text: str) -> Source:
    if text.startswith(_HEADER):
        name = text[len(_HEADER) :]
        return lambda headers: headers.get(name)
    names = _PLACEHOLDER.findall(text)
    if not names:
        return lambda _headers: text
    template = _PLACEHOLDER.sub("{}", text.replace("{}", ""))
    return lambda headers: _fill(template, names, headers)


def _fill(template: str, names: list[str], headers: Headers) -> str | None:
    values = [headers.get(name) for name in names]
    if None in values:
        return None
    parts = template.split("{}")
    return "".join(part for pair in zip(parts, [*map(str, values), ""], strict=True) for part in pair)


def _whole(source: Source | None, headers: Headers, *, least: int, most: int) -> int | None:
    text = None if source is None else source(headers)
    if text is None:
        return None
    try:
        return max(least, min(most, int(text)))
    except ValueError:
        return None
