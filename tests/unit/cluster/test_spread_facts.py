"""Check that the facts of the verbs agree with the code that handles partitions."""

from __future__ import annotations

from fairlane.cluster.cluster_verbs import SPECIAL
from fairlane.cluster.partitions.messages import SPREAD
from fairlane.verbs.table import VERBS


def test_every_verb_that_spreads_has_code_that_spreads_it() -> None:
    """A verb with a spread is spread by the table, or handles partitions itself."""
    spread = {name for name, verb in VERBS.items() if verb.spread not in (None, "own")}
    own = {name for name, verb in VERBS.items() if verb.spread == "own"}
    assert spread == set(SPREAD)
    assert own <= set(SPECIAL)
