"""Verbs about config values, throttles and hooks."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from fairlane.model.bounds import ConfigChanges, Headers
from fairlane.model.views import HookStatistics, HookTrial, ThrottleView
from fairlane.verbs.verb import Done, Request, Shape, Verb

PRIVATE_PREFIX: Final = "auth:"
"""Config keys that begin with it belong to the server: no verb shows or sets them, and no hook sees them."""

Charge: TypeAlias = Literal["message", "cost"]
"""What a throttle takes of a message: one token, or as many as the message costs."""
BY_MESSAGE: Final = "message"
BY_COST: Final = "cost"
CHARGES: Final = (BY_MESSAGE, BY_COST)


@Verb(name="set_config", path="config/set", right="admin", about="every", repeat="always", command="config set")
class SetConfig(Request[Done], frozen=True, kw_only=True):
    """Set config values in one commit.

    Attributes:
        values: the values by config key; null removes a value.
        owner: who is responsible for the values, for the journal.
        reason: why they are set, for the journal.
        expire_after_ms: make the values temporary. After this time the broker restores the values that were set
            without an expiry before; null sets values that stay.
    """

    values: ConfigChanges
    owner: str | None = None
    reason: str | None = None
    expire_after_ms: int | None = None


class TemporaryValue(Shape, frozen=True, kw_only=True):
    """The facts about a config value that expires.

    Attributes:
        key: the config key.
        expires_ms: when the broker restores the earlier value.
        before: the earlier value; null if there was none.
    """

    key: str
    expires_ms: int
    before: str | None = None
    owner: str | None = None
    reason: str | None = None


class ConfigValues(Shape, frozen=True, kw_only=True):
    """Config values by config key.

    Attributes:
        temporary: those of the values that expire.
    """

    values: dict[str, str]
    temporary: list[TemporaryValue] = msgspec.field(default_factory=list)


@Verb(name="list_config", path="config/list", right="admin", about="every", repeat="always", command="config list")
class ListConfig(Request[ConfigValues], frozen=True, kw_only=True):
    """Return config values.

    Attributes:
        prefix: return only the values whose config keys begin with it.
    """

    prefix: str = ""


class ConfigValue(Shape, frozen=True, kw_only=True):
    """A config value; null if it is not set."""

    value: str | None = None


@Verb(name="get_config", path="config/get", right="admin", about="every", repeat="always", command="config get")
class GetConfig(Request[ConfigValue], frozen=True, kw_only=True):
    """Return one config value."""

    key: str


class ThrottleList(Shape, frozen=True, kw_only=True):
    """Throttles that have a rate, by name."""

    throttles: list[ThrottleView]


@Verb(name="throttles", path="config/throttles", right="observe", about="every", repeat="always")
class ListThrottles(Request[ThrottleList], frozen=True, kw_only=True):
    """Return all throttles that have a rate, with their current tokens."""


@Verb(name="try_hook", path="queues/hook/try", right="admin", repeat="always", spread="all", command="hook test")
class TryHook(Request[HookTrial], frozen=True, kw_only=True):
    """Run a script on a sample in a sandbox. Nothing changes.

    Attributes:
        headers: the headers of the sample message.
        payload_size: for ``on_enqueue``, the bytes of payload of the sample.
        attempts: for ``on_failure``, the number of failed attempts.
        error: for ``on_failure``, the error of the latest attempt.
    """

    queue: str
    hook: Literal["on_enqueue", "on_failure"]
    script: str
    headers: Headers = msgspec.field(default_factory=dict)
    payload_size: int = 0
    attempts: int = 1
    error: str = ""


@Verb(name="hook_statistics", path="queues/hook/statistics", right="observe", repeat="always", spread="all")
class GetHookStatistics(Request[HookStatistics], frozen=True, kw_only=True):
    """Return statistics about the scripts of a queue since the broker was opened."""

    queue: str
