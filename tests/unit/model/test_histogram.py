"""Percentiles read from histograms are those of the values, to one part in 32."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.histogram import LogHistogram, bucket_of, greatest_in


def test_buckets_are_exact_below_64_and_fine_above() -> None:
    """Their greatest values grow by one up to 63, then by two up to 127, and so on."""
    assert [greatest_in(bucket) for bucket in (0, 1, 63, 64, 65, 95, 96, 97)] == [0, 1, 63, 65, 67, 127, 131, 135]


@given(st.lists(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=30), min_size=1, max_size=4))
def test_merged_percentiles_are_close_to_those_of_all_values(parts: list[list[int]]) -> None:
    """Whatever the values and however they are split, the answer is the true one or up to a 32nd above."""
    histogram = LogHistogram()
    for values in parts:
        entries = [{"bucket": bucket_of(value), "count": 1} for value in values]
        histogram.add(entries, most=max(values))
    values = sorted(value for part in parts for value in part)
    for part in (0.5, 0.9, 0.99, 1.0):
        exact = values[ceil(len(values) * part) - 1]
        found = histogram.percentile(part)
        assert found is not None
        assert exact <= found <= exact + exact // 32 + 1


def test_nothing_has_no_percentile() -> None:
    """Without values there is no answer, rather than a wrong one."""
    assert LogHistogram().percentile(0.5) is None
