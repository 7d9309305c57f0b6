"""Queue templates: what the policy of a new queue begins with, by the pattern of its name, and whether a request to a
missing queue creates it.

A template is a config value, so it is set, listed, journaled, made temporary and shared by the nodes of a cluster like
every other one. Its config key is ``queue_template:PATTERN``; its value is a ``QueueTemplate`` as JSON.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlane.model.bounds import PolicyChanges
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.verbs.keys import EVERY, fits

TEMPLATE_PREFIX: Final = "queue_template:"
_QUEUES_MAX: Final = 1_000_000


class QueueTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for new queues whose names match a pattern.

    Attributes:
        policy: the fields that their policies begin with; those that ``create_queue`` gives come on top.
        auto_create: whether an enqueue, lease, stream or forward to a missing queue creates it.
        queues_max: from how many queues on the template creates no more; dead-letter queues don't count, but queues of
            all names do.
    """

    policy: PolicyChanges = msgspec.field(default_factory=dict)
    auto_create: bool = False
    queues_max: int = 1_000

    def base(self) -> QueuePolicy:
        """Return the policy that new queues begin with.

        Raises:
            ValueError: a field is not valid in this version.
        """
        return policy_from(dict(self.policy))


Templates = dict[str, QueueTemplate]
"""Templates by the pattern of the names they hold for."""


def template_fault(config_key: str, value: str) -> str | None:
    """Return what is wrong with a template, or None if nothing is."""
    pattern = config_key[len(TEMPLATE_PREFIX) :]
    if not pattern or EVERY in pattern[:-1]:
        return f"A template is named {TEMPLATE_PREFIX}PATTERN: a name, a prefix followed by a star, or a star."
    try:
        template = msgspec.json.decode(value, type=QueueTemplate)
        template.base()
    except (msgspec.DecodeError, ValueError) as error:
        return f"{config_key!r:.150} is not a valid queue template: {error}"
    if not 1 <= template.queues_max <= _QUEUES_MAX:
        return f"queues_max must be an integer from 1 to {_QUEUES_MAX}, got {template.queues_max}."
    return None


def template_value(template: QueueTemplate) -> str:
    """Return the config value of a template."""
    return msgspec.json.encode(template).decode()


def templates_in(config: Mapping[str, str]) -> Templates:
    """Return the templates among config values. A value that this version can't read is ignored."""
    found: Templates = {}
    for key, value in config.items():
        if key.startswith(TEMPLATE_PREFIX):
            note_template(found, key, value)
    return found


def note_template(templates: Templates, config_key: str, value: str | None) -> None:
    """Follow a change of a config value: set a template, or remove it. Its policy was checked when it was set."""
    pattern = config_key[len(TEMPLATE_PREFIX) :]
    templates.pop(pattern, None)
    if value is not None:
        with contextlib.suppress(msgspec.DecodeError):
            templates[pattern] = msgspec.json.decode(value, type=QueueTemplate)


def template_for(templates: Mapping[str, QueueTemplate], queue: str) -> QueueTemplate | None:
    """Return the template that holds for a queue: that of its name, or else with the longest prefix of its name."""
    patterns = [pattern for pattern in templates if fits(pattern, queue)]
    best = queue if queue in templates else max(patterns, key=len, default=None)
    return None if best is None else templates[best]


def base_fields(templates: Mapping[str, QueueTemplate], queue: str) -> dict[str, Any]:
    """Return the policy fields that a new queue begins with."""
    template = template_for(templates, queue)
    return {} if template is None else dict(template.policy)


def full_text(queue: str, template: QueueTemplate, count: int) -> str | None:
    """Return why a template creates no more queues, given how many there are, or None if it does."""
    if count < template.queues_max:
        return None
    most = f"there are {count} queues, and queues_max of its template is {template.queues_max}"
    return f"Queue {queue!r:.150} does not exist and was not created: {most}."
