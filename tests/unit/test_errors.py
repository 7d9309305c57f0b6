"""The tree of errors."""

from __future__ import annotations

import pickle

from fairlane import errors
from fairlane.errors import FairlaneError, FullError, RequestError, UnavailableError

BRANCHES = (FairlaneError, RequestError, UnavailableError, FullError)
LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairlaneError) and kind not in BRANCHES
]


def test_every_error_has_a_code_of_its_own_and_a_remedy() -> None:
    """Programs tell errors apart by their code, and the remedy says what to do."""
    codes = [kind.code for kind in LEAVES]
    assert len(set(codes)) == len(codes) > 5
    for kind in LEAVES:
        assert kind.code == kind.code.lower()
        assert kind.remedy.endswith(".")
        assert kind.__doc__


def test_the_text_of_an_error_is_its_cause_and_its_remedy() -> None:
    """The text of an error is the cause followed by the remedy."""
    assert str(errors.Closed("The broker is closed.")) == "The broker is closed. Open a new one, or stop."


def test_an_error_survives_being_pickled() -> None:
    """Text and attributes are the same after pickling, as between two processes."""
    error = errors.KeyFull("Key 'a' is full.", retry_after_ms=250)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy), copy.retry_after_ms) == (errors.KeyFull, str(error), 250)
