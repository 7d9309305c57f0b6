"""When there is an alarm, and when there is none."""

from __future__ import annotations

import pytest

from fairlane.alarms.rules import HOUR_MS, MINUTE_MS, Errors, Hour, Service, above_entitlement, new_errors, slower

NOW = 100 * HOUR_MS + 30 * MINUTE_MS


def served(**tenants: tuple[float, float]) -> list[str]:
    """Return the tenants of a queue that are served too much, given what each was served and entitled to."""
    services = [Service("orders", name, *sums) for name, sums in tenants.items()]
    return [alarm.subject for alarm in above_entitlement(services, now_ms=NOW)]


def test_a_tenant_with_twice_its_entitlement_and_a_tenth_of_the_service_is_named() -> None:
    """Both are needed: twice of little is no alarm, and neither is a little more of much."""
    assert served(noisy=(60, 25), quiet=(40, 75)) == ["noisy"]
    assert served(small=(9, 0), large=(91, 100)) == []
    assert served(large=(70, 55), quiet=(30, 45)) == []
    assert served(noisy=(10, 0), quiet=(90, 100)) == ["noisy"]


def test_fair_service_and_no_service_are_no_alarm() -> None:
    """Tenants that get what they are entitled to are not named, nor those of a queue without consumers."""
    assert served(a=(50, 50), b=(50, 50)) == []
    assert served(a=(0, 0), b=(0, 0)) == []


def test_queues_are_judged_each_by_its_own_service() -> None:
    """A tenth is a tenth of what this queue was served."""
    services = [Service("small", "a", 9, 1), Service("small", "b", 1, 9), Service("large", "a", 1_000, 1_000)]
    (alarm,) = above_entitlement(services, now_ms=NOW)
    assert (alarm.queue, alarm.subject, alarm.value, alarm.expected, alarm.since_ms) == ("small", "a", 0.9, 0.1, NOW)
    assert alarm.text == "a got 90% of the service of small in the last 10 minutes and was entitled to 10%."


def waits(*p99_ms: int, leases: int = 100, last_hour: int = 100) -> list[int]:
    """Return the p99 of each alarm about a key with this p99 in each hour up to the last."""
    first = last_hour - len(p99_ms) + 1
    hours = [Hour("orders", "acme", (first + at) * HOUR_MS, leases, wait) for at, wait in enumerate(p99_ms)]
    return [round(alarm.value) for alarm in slower(hours, now_ms=NOW)]


def test_a_wait_far_above_the_hours_before_is_an_alarm() -> None:
    """Five times as long as ever in the hours before is, whatever the level."""
    assert waits(*[200, 220, 190, 210, 200, 205], 1_000) == [1_000]
    assert waits(*[200, 220, 190, 210, 200, 205], 230) == []


def test_a_wait_that_varies_anyway_is_no_alarm() -> None:
    """What the hours before have shown often is usual."""
    assert waits(*[100, 900, 120, 1_000, 110, 800, 130, 950], 1_500) == []


def test_a_new_level_becomes_usual() -> None:
    """A change is told once: when most of the hours before have it, it is no change any more."""
    assert waits(*[200] * 6, *[2_000] * 3) == [2_000]
    assert waits(*[200] * 6, *[2_000] * 8) == []


@pytest.mark.parametrize(
    ("hours", "leases", "last_hour"),
    [
        pytest.param([200] * 5 + [2_000], 100, 100, id="too few hours before"),
        pytest.param([200] * 6 + [2_000], 99, 100, id="too few leases"),
        pytest.param([10] * 6 + [100], 100, 100, id="not noticeable"),
        pytest.param([200] * 6 + [2_000], 100, 98, id="long ago"),
    ],
)
def test_little_evidence_is_no_alarm(hours: list[int], leases: int, last_hour: int) -> None:
    """A rise that rests on little, is short, or is past wakes nobody."""
    assert waits(*hours, leases=leases, last_hour=last_hour) == []


def test_waits_of_one_key_say_nothing_about_another() -> None:
    """Each key is compared with itself."""
    slow = [Hour("orders", "slow", hour * HOUR_MS, 500, 5_000) for hour in range(90, 101)]
    fast = [Hour("orders", "fast", hour * HOUR_MS, 500, 50) for hour in range(90, 101)]
    assert list(slower([*slow, *fast], now_ms=NOW)) == []


def test_an_error_is_new_for_an_hour() -> None:
    """It is told by its text and the number of its dead letters."""
    fresh = Errors("orders", "e1", "timeout after <n> s", 3, NOW - HOUR_MS + 1)
    (alarm,) = new_errors([fresh, fresh._replace(first_seen_ms=NOW - HOUR_MS)], now_ms=NOW)
    assert alarm.subject == "e1"
    assert alarm.text == "A new error in orders, 3 dead letters: timeout after <n> s"
