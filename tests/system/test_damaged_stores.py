"""Damaged stores are refused, or nothing is lost; and no id or token is ever issued twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.damage.base import Answered, make_base
from tests.kit.damage.trial import KINDS_OF, SEEDS, Outcome, random_trial, trial

_SEEDS_QUICK = 40
Base = tuple[Path, Answered]
CASES = [(store, kind) for store, kinds in KINDS_OF.items() for kind in kinds]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    """Make a store of each kind."""
    folder = tmp_path_factory.mktemp("base")
    return {store: (folder / store, make_base(folder / store, store)) for store in KINDS_OF}


@pytest.fixture(scope="module")
def outcomes(bases: dict[str, Base], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """Try all known kinds of damage."""
    work = tmp_path_factory.mktemp("damaged")
    return {(store, kind): trial(*bases[store], work, kind, KINDS_OF[store][kind]) for store, kind in CASES}


@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_a_known_kind_of_damage_is_loud_or_harmless(
    outcomes: dict[tuple[str, str], Outcome], case: tuple[str, str]
) -> None:
    """A store with this damage is refused, or has everything that was answered."""
    assert not outcomes[case].is_silent, outcomes[case]


@pytest.mark.parametrize("store", KINDS_OF)
@pytest.mark.parametrize("kind", ["none", "log: garbage after the end", "log: zeros after the end"])
def test_what_is_no_damage_is_not_refused(outcomes: dict[tuple[str, str], Outcome], store: str, kind: str) -> None:
    """A store that lost nothing starts."""
    assert outcomes[store, kind].result == "started, nothing lost"


def test_a_lost_summary_of_a_segment_is_no_damage(outcomes: dict[tuple[str, str], Outcome]) -> None:
    """Summaries are a cache."""
    for kind in ("summary: deleted", "summary: 1 byte flipped"):
        assert outcomes["log", kind].result == "started, nothing lost"


_LOSSES = [case for case in CASES if case[1].startswith("log: ") and not case[1].endswith("after the end")]
_MORE_LOSSES = [
    ("rocksdb", "folder rocksdb gone"),
    ("rocksdb", "CURRENT and log gone"),
    ("rocksdb", "high-water mark: gone"),
    ("log", "folder log gone"),
    ("log", "high-water mark: gone"),
    ("log", "header: zeroed"),
    ("log", "checkpoint: zeroed"),
    ("log", "full segment: deleted"),
]


@pytest.mark.parametrize("case", [*_LOSSES, *_MORE_LOSSES], ids=": ".join)
def test_lost_commits_are_refused(outcomes: dict[tuple[str, str], Outcome], case: tuple[str, str]) -> None:
    """A store that lost commits is refused as damaged, and so is one that lost what would show it."""
    assert outcomes[case].result == "refused (store_damaged)"


@pytest.mark.parametrize("store", KINDS_OF)
def test_a_server_with_a_damaged_store_does_not_start_until_it_is_repaired(
    bases: dict[str, Base], tmp_path: Path, store: str
) -> None:
    """The remedy in its error works as it is written, with the data folder of the server."""
    shutil.copytree(bases[store][0], tmp_path / "data" / "store")
    KINDS_OF[store]["log: 1 byte flipped at 50 %"](tmp_path / "data" / "store")
    data = str(tmp_path / "data")
    refused = _fairlane("serve", "--data", data, "--port", "0")
    assert (refused.returncode, refused.stderr.startswith("error[store_damaged]")) == (3, True), refused.stderr
    assert "`fairlane store check FOLDER`" in refused.stderr
    assert "`fairlane store repair FOLDER`" in refused.stderr
    assert _fairlane("store", "check", data).returncode == 1
    assert _fairlane("store", "repair", data, "--yes").returncode == 0
    assert _fairlane("--data", data, "queue", "list").returncode == 0


def _fairlane(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fairlane", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("store", KINDS_OF)
def test_random_damage_is_loud_or_harmless(bases: dict[str, Base], tmp_path: Path, store: str) -> None:
    """No random damage to any file loses anything silently: the first seeds."""
    _check_seeds(bases[store], tmp_path, range(_SEEDS_QUICK))


@pytest.mark.long
@pytest.mark.parametrize("store", KINDS_OF)
def test_more_random_damage_is_loud_or_harmless(bases: dict[str, Base], tmp_path: Path, store: str) -> None:
    """No random damage to any file loses anything silently: the other seeds."""
    _check_seeds(bases[store], tmp_path, range(_SEEDS_QUICK, SEEDS))


def _check_seeds(base: Base, work: Path, seeds: range) -> None:
    outcomes = [random_trial(*base, work, seed) for seed in seeds]
    assert [outcome for outcome in outcomes if outcome.is_silent] == []
