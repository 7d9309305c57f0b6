"""Spans of time as people write them: ``500ms``, ``30s``, ``5m``, ``2h``, ``1d``."""

from __future__ import annotations

import re

import click

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def milliseconds(text: str) -> int:
    """Return the milliseconds of a span such as ``90s`` or ``1h30m``.

    Raises:
        ValueError: it is none.
    """
    if text == "0":
        return 0
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"A duration has a unit, as in 500ms, 30s, 5m, 2h or 1d, unlike {text!r}.")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if total != int(total):
        raise ValueError(f"A duration is a whole number of milliseconds, unlike {text!r}.")
    return int(total)


def words(span_ms: int) -> str:
    """Return a span in one or two units, such as ``1h30m``; parts of a second only in short ones."""
    if span_ms < 0:
        return "-" + words(-span_ms)
    if span_ms < _UNITS["s"]:
        return f"{span_ms}ms"
    if span_ms < 10 * _UNITS["s"]:
        return f"{span_ms / _UNITS['s']:.1f}".removesuffix(".0") + "s"
    for unit, below in (("d", "h"), ("h", "m"), ("m", "s")):
        whole, rest = divmod(span_ms, _UNITS[unit])
        if whole:
            part = rest // _UNITS[below]
            return f"{whole}{unit}" + (f"{part}{below}" if part else "")
    return f"{span_ms // _UNITS['s']}s"


class Duration(click.ParamType):  # type: ignore[type-arg] # older versions of click know no argument
    """An option that is a span of time, in milliseconds for the program."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds of what was written."""
        if isinstance(value, int):
            return value
        try:
            return milliseconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Patience(Duration):
    """A span of time, or ``forever``."""

    name = "duration|forever"
    forever_ms = 366 * 24 * 3600 * 1000

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds of what was written."""
        return self.forever_ms if value == "forever" else super().convert(value, param, ctx)


DURATION = Duration()
PATIENCE = Patience()
