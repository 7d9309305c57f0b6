"""Metrics as text: the format of Prometheus, and OpenMetrics, which can have exemplars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, TypeAlias, TypeVar

from fairlane.model.histogram import Histogram

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PART: Final = 500
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Values = TypeVar("Values", bound=tuple[str, ...])
Sums: TypeAlias = dict[tuple[str, ...], float]
"""Values by the values of their labels, added up where several have the same."""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A trace that a value was seen in."""

    trace_id: str
    span_id: str
    value: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; ``suffix`` is what a histogram adds to its name."""

    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric. The name of a counter ends in ``_total``."""

    name: str
    kind: Kind
    told: str
    samples: list[Sample] = field(default_factory=list)


def single(value: float) -> list[Sample]:
    """Return the one sample of a metric without labels."""
    return [Sample((), value)]


def labelled(labels: Sequence[str], values: Mapping[Values, float]) -> list[Sample]:
    """Return a sample for each value, whose keys are the values of the labels."""
    return [Sample(tuple(zip(labels, key, strict=True)), value) for key, value in sorted(values.items())]


def of_histogram(
    found: Histogram, labels: tuple[tuple[str, str], ...] = (), exemplars: Mapping[int, Exemplar] | None = None
) -> Iterable[Sample]:
    """Return the samples of a histogram, with an exemplar for each bucket that has one."""
    known = exemplars or {}
    bounds = [*(f"{bound:g}" for bound in found.bounds), "+Inf"]
    for at, (bound, count) in enumerate(zip(bounds, accumulate(found.counts), strict=True)):
        yield Sample((*labels, ("le", bound)), count, "_bucket", known.get(at))
    yield Sample(labels, found.sum, "_sum")
    yield Sample(labels, found.count, "_count")


def written(families: Iterable[Family], *, is_open_metrics: bool) -> Iterator[str]:
    """Yield the text of metrics in parts, between which something else may be done."""
    for family in families:
        is_counter = is_open_metrics and family.kind == "counter"
        name = family.name.removesuffix("_total") if is_counter else family.name
        yield f"# HELP {name} {family.told}\n# TYPE {name} {family.kind}\n"
        for first in range(0, len(family.samples), _PART):
            part = family.samples[first : first + _PART]
            yield "".join(_line(family.name, sample, with_exemplar=is_open_metrics) + "\n" for sample in part)
    if is_open_metrics:
        yield "# EOF\n"


def _line(name: str, sample: Sample, *, with_exemplar: bool) -> str:
    labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels)
    text = f"{name}{sample.suffix}{{{labels}}}" if labels else f"{name}{sample.suffix}"
    value = sample.value
    text += f" {int(value)}" if value == int(value) else f" {value!r}"
    exemplar = sample.exemplar
    if with_exemplar and exemplar is not None:
        ids = f'trace_id="{exemplar.trace_id}",span_id="{exemplar.span_id}"'
        text += f" # {{{ids}}} {exemplar.value!r} {exemplar.at_s:.3f}"
    return text
