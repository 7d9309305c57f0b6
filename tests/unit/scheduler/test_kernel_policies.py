"""Policies: set, provided, refused."""

from __future__ import annotations

import pytest

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy


def provider_that_fails_for(*bad: Key) -> object:
    """Return a provider that raises for some keys."""

    def provide(key: Key) -> KeyPolicy:
        if key in bad:
            raise LookupError(f"no policy for {key!r}")
        return KeyPolicy(weight=2)

    return provide


def test_a_provider_that_raises_leaves_nothing_half_done() -> None:
    """The items before the failing one are accepted and counted, the others are not, and the kernel still works."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy_provider(provider_that_fails_for("bad", ("new", "bad")))  # type: ignore[arg-type] # a wrong value is the point
    kernel.offer(Item("good"), 0)
    items = [Item("good"), Item("good"), Item("bad"), Item("good")]
    with pytest.raises(LookupError):
        kernel.offer_many(items, 0)
    with pytest.raises(LookupError):
        kernel.offer(Item(("new", "bad")), 0)
    assert [item.is_waiting for item in items] == [True, True, False, False]
    assert len(kernel) == 3
    assert kernel.waiting("new") == 0
    assert [item.key for item in kernel.take(5, 0)] == ["good"] * 3
    assert len(kernel) == 0


def test_a_new_provider_that_raises_is_not_adopted() -> None:
    """When it fails for a known key, all keys keep the policies they had."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy_provider(lambda key: KeyPolicy(weight=3 if key == "a" else 1))
    for key in "ababab":
        kernel.offer(Item(key), 0)
    with pytest.raises(LookupError):
        kernel.set_policy_provider(provider_that_fails_for("b"))  # type: ignore[arg-type] # a wrong value is the point
    assert [item.key for item in kernel.take(6, 0)] == ["a", "a", "a", "b", "b", "b"]
    kernel.offer(Item("c"), 0)
    assert kernel.take(1, 0)[0].key == "c"


def test_a_policy_set_for_a_key_goes_before_the_provider() -> None:
    """A policy set for a key applies until it is cleared; then the provider is called again."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy_provider(lambda _: KeyPolicy(weight=1))
    kernel.set_policy("a", KeyPolicy(weight=2))
    kernel.offer_many([Item(key) for key in "aaaabbbb"], 0)
    assert [item.key for item in kernel.take(3, 0)] == ["a", "a", "b"]
    kernel.clear_policy("a")
    assert [item.key for item in kernel.take(4, 0)] == ["a", "b", "a", "b"]


def test_a_provided_cap_needs_items_in_use_counted() -> None:
    """A cap that could never fill is refused instead of ignored, from a caller and from a provider."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy_provider(lambda _: KeyPolicy(cap=1))
    with pytest.raises(ValueError, match="counts_use"):
        kernel.offer(Item("a"), 0)
    with pytest.raises(ValueError, match="counts_use"):
        kernel.set_policy("a", KeyPolicy(cap=1))
    assert len(kernel) == 0


@pytest.mark.parametrize("terms", [{"weight": 0}, {"weight": 1.5}, {"quantum": 0}, {"cap": -1}, {"waiting_max": 0}])
def test_terms_out_of_range_are_refused(terms: dict[str, int]) -> None:
    """Weights, quanta, caps and limits must be integers in their ranges."""
    with pytest.raises(ValueError, match=next(iter(terms))):
        KeyPolicy(**terms)  # type: ignore[arg-type] # a wrong value is the point
