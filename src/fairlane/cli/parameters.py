"""Options that are neither text nor number: fairness keys, and names with values."""

from __future__ import annotations

import click


class KeyPath(click.ParamType):  # type: ignore[type-arg] # older versions of click know no argument
    """A fairness key; slashes make a path of it."""

    name = "key"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | tuple[str, ...]:
        """Return the key that was written."""
        if isinstance(value, tuple):
            return value
        names = tuple(str(value).split("/"))
        if not all(names):
            self.fail(f"A key is a name, or names with slashes between them, unlike {str(value)!r}.", param, ctx)
        return names[0] if len(names) == 1 else names


class Pair(click.ParamType):  # type: ignore[type-arg] # older versions of click know no argument
    """A name and a value, with an equals sign between them."""

    name = "name=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, sign, text = str(value).partition("=")
        if not sign or not name:
            self.fail(f"Write NAME=VALUE, unlike {str(value)!r}.", param, ctx)
        return name, text


KEY = KeyPath()
PAIR = Pair()


def written(key: str | tuple[str, ...]) -> str:
    """Return a key as people write it."""
    return key if isinstance(key, str) else "/".join(key)
