"""Config: values are set, permanently or for a while, and restored when that time is over.

A *temporary* value hides the permanent one. The broker itself restores the permanent value, so a tool that dies after
setting a temporary one leaves nothing behind. Any later change wins: a value without an expiry is permanent, and ends
the temporary one.
"""

from __future__ import annotations

import math
from typing import Final

from fairlane.core.checks import is_text, text_fault, whole_fault
from fairlane.core.commands import Given, RestoreConfig
from fairlane.core.config_patterns import THROTTLE_PREFIX, THROTTLE_SETTINGS, key_pattern_fault, pattern_fault
from fairlane.core.decision import Deciders, Decision, refuse
from fairlane.core.ledger import Ledger
from fairlane.core.throttling import THROTTLE_WEIGHT_PREFIX
from fairlane.errors import InvalidArgument
from fairlane.journal.records import AnyRecord, ConfigSet
from fairlane.model import limits
from fairlane.verbs.config import CHARGES, SetConfig
from fairlane.verbs.keys import EVERY
from fairlane.verbs.templates import TEMPLATE_PREFIX, template_fault
from fairlane.verbs.verb import Done

WEIGHT_PREFIX = "weight:"
CAP_PREFIX = "cap:"
FLOOR_PREFIX = "floor:"
_WHOLE_SETTINGS = (
    (WEIGHT_PREFIX, 1, limits.WEIGHT_MAX),
    (CAP_PREFIX, 0, limits.CAP_MAX),
    (FLOOR_PREFIX, 0, limits.CAP_MAX),
    (THROTTLE_WEIGHT_PREFIX, 1, limits.WEIGHT_MAX),
)
_RATE_SETTINGS = ("rate:", "burst:")
_CHARGE_PREFIX = "charge:"

EXPIRY: Final = "expiry"
"""The reason in the journal for a value that is restored because another has expired."""


def set_config(ledger: Ledger, request: SetConfig, now_ms: int, given: Given) -> Decision[Done]:
    """Set or remove config values. Those that the broker itself acts on must make sense."""
    if (fault := change_fault(request)) is not None:
        return refuse(InvalidArgument(fault))
    span_ms = request.expire_after_ms
    expires_ms = None if span_ms is None else now_ms + span_ms
    changed = [
        (key, value)
        for key, value in request.values.items()
        # A value that stays the same may begin to be temporary, or cease to be.
        if ledger.config.get(key) != value or expires_ms is not None or key in ledger.temporary
    ]
    records: list[AnyRecord] = [
        ConfigSet(sequence, key, value, given.by, request.owner, request.reason, expires_ms)
        for sequence, (key, value) in enumerate(changed, ledger.next_sequence)
    ]
    return Decision(records, Done())


def restore_config(ledger: Ledger, _command: RestoreConfig, now_ms: int, _given: Given) -> Decision[None]:
    """Restore what temporary values have covered, where these have expired."""
    expired = [image for image in ledger.temporary.values() if image.expires_ms <= now_ms]
    records: list[AnyRecord] = [
        ConfigSet(sequence, image.key, image.before, None, image.owner, EXPIRY)
        for sequence, image in enumerate(expired, ledger.next_sequence)
    ]
    return Decision(records, None)


def change_fault(request: SetConfig) -> str | None:
    """Return what is wrong with a change of config, or None if nothing is."""
    for key, value in request.values.items():
        fault = text_fault("A config key", key, most=limits.CONFIG_KEY_LENGTH_MAX)
        if fault is None and value is not None:
            fault = value_fault(key, value)
        if fault is not None:
            return fault
    return _note_fault(request)


def _note_fault(request: SetConfig) -> str | None:
    texts = (("owner", request.owner, limits.OWNER_LENGTH_MAX), ("reason", request.reason, limits.ERROR_LENGTH_MAX))
    for name, text, most in texts:
        if text is not None and (fault := text_fault(name, text, most=most)) is not None:
            return fault
    if request.expire_after_ms is None:
        return None
    return whole_fault("expire_after_ms", request.expire_after_ms, least=1, most=limits.TIMESPAN_MS_MAX)


def value_fault(key: str, value: object) -> str | None:
    """Return what is wrong with a config value, or None if nothing is."""
    if not isinstance(value, str) or len(value) > limits.CONFIG_VALUE_LENGTH_MAX or not is_text(value):
        return f"A config value must be text of at most {limits.CONFIG_VALUE_LENGTH_MAX} characters."
    if key.startswith(THROTTLE_PREFIX):
        return _throttle_fault(key, value)
    if key.startswith(TEMPLATE_PREFIX):
        return template_fault(key, value)
    if key.startswith(_RATE_SETTINGS):
        fault = _setting_name_fault(key)
        return fault if fault is not None else _rate_fault(key, value, key.partition(":")[0])
    if key.startswith(_CHARGE_PREFIX):
        fault = _setting_name_fault(key)
        return fault if fault is not None else _charge_fault(key, value)
    for prefix, least, most in _WHOLE_SETTINGS:
        if key.startswith(prefix):
            fault = _setting_name_fault(key)
            return fault if fault is not None else _whole_setting_fault(key, value, least=least, most=most)
    return None


def _throttle_fault(key: str, value: str) -> str | None:
    name, _, setting = key[len(THROTTLE_PREFIX) :].rpartition(":")
    if not name or setting not in THROTTLE_SETTINGS:
        return f"The config keys of a throttle are throttle:NAME:rate, :burst and :charge; {key!r} is none of them."
    if EVERY in name:
        fault = pattern_fault("The pattern of a throttle", name, most=limits.THROTTLE_NAME_LENGTH_MAX)
        if fault is not None:
            return fault
    if setting != "charge":
        return _rate_fault(key, value, setting)
    return _charge_fault(key, value)


def _charge_fault(key: str, value: str) -> str | None:
    return None if value in CHARGES else f"{key} must be {' or '.join(CHARGES)}, not {value!r:.60}."


def _rate_fault(key: str, value: str, setting: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return f"{key} must be a number, not {value!r:.60}."
    if not math.isfinite(number) or number > limits.RATE_MAX:
        return f"{key} must be a finite number of at most 1e9, not {value!r:.60}."
    if setting == "burst" and not (number == 0 or number >= 1):
        return f"{key} must be at least 1, or 0 to let nothing through, not {value!r:.60}."
    if setting == "rate" and not (number == 0 or number >= limits.RATE_LEAST):
        return f"{key} must be 0 or at least 0.000001, not {value!r:.60}."
    return None


def _setting_name_fault(key: str) -> str | None:
    parts = key.split(":", 2)
    is_weight = key.startswith(THROTTLE_WEIGHT_PREFIX)
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 - the three parts named in the text
        if is_weight:
            return f"The config key for a queue's weight in a throttle is {parts[0]}:QUEUE:THROTTLE, not {key!r}."
        hint = f" Use {parts[0]}:*:{parts[1]} for all queues." if parts[1].endswith(EVERY) else ""
        return f"The config key for this setting of a fairness key is {parts[0]}:QUEUE:KEY, not {key!r}.{hint}"
    _, queue, name = parts
    if key.startswith(FLOOR_PREFIX) and "/" in name:
        return f"Only a tenant (a top-level fairness key) can have a floor, not {name!r:.100}."
    if EVERY not in queue + name:
        return None
    if is_weight:
        return f"The weight of a queue in a throttle names one queue and one throttle, not a pattern such as {key!r}."
    return key_pattern_fault(queue, name)


def _whole_setting_fault(key: str, value: str, *, least: int, most: int) -> str | None:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        return f"{key} must be a whole number from {least} to {most}, not {value!r:.60}."
    return None


DECIDERS: Final[Deciders] = {SetConfig: set_config, RestoreConfig: restore_config}
