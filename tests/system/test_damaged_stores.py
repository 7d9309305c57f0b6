"""Damaged stores are refused, or nothing is lost; and no id or token is ever issued twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.damage.base import Answered, make_base
from tests.kit.damage.kinds import KINDS
from tests.kit.damage.trial import SEEDS, Outcome, random_trial, trial

_SEEDS_QUICK = 40


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answered]:
    folder = tmp_path_factory.mktemp("base") / "store"
    return folder, make_base(folder)


@pytest.fixture(scope="module")
def outcomes(base: tuple[Path, Answered], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Try all known kinds of damage."""
    work = tmp_path_factory.mktemp("damaged")
    return {kind: trial(*base, work, kind, damage) for kind, damage in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_kind_of_damage_is_loud_or_harmless(outcomes: dict[str, Outcome], kind: str) -> None:
    """A store with this damage is refused, or has everything that was answered."""
    assert not outcomes[kind].is_silent, outcomes[kind]


@pytest.mark.parametrize("kind", ["none", "log: garbage after the end", "log: zeros after the end"])
def test_what_is_no_damage_is_not_refused(outcomes: dict[str, Outcome], kind: str) -> None:
    """A store that lost nothing starts."""
    assert outcomes[kind].result == "started, nothing lost"


_LOSSES = [kind for kind in KINDS if kind.startswith("log: ") and not kind.endswith("after the end")]


@pytest.mark.parametrize("kind", [*_LOSSES, "folder rocksdb gone", "CURRENT and log gone", "high-water mark: gone"])
def test_lost_commits_are_refused(outcomes: dict[str, Outcome], kind: str) -> None:
    """A store that lost commits is refused as damaged, and so is one that lost what would show it."""
    assert outcomes[kind].result == "refused (store_damaged)"


def test_a_server_with_a_damaged_store_does_not_start_until_it_is_repaired(
    base: tuple[Path, Answered], tmp_path: Path
) -> None:
    """The remedy in its error works as it is written, with the data folder of the server."""
    shutil.copytree(base[0], tmp_path / "data" / "store")
    KINDS["log: 1 byte flipped at 50 %"](tmp_path / "data" / "store")
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


def test_random_damage_is_loud_or_harmless(base: tuple[Path, Answered], tmp_path: Path) -> None:
    """No random damage to any file loses anything silently: the first seeds."""
    _check_seeds(base, tmp_path, range(_SEEDS_QUICK))


@pytest.mark.long
def test_more_random_damage_is_loud_or_harmless(base: tuple[Path, Answered], tmp_path: Path) -> None:
    """No random damage to any file loses anything silently: the other seeds."""
    _check_seeds(base, tmp_path, range(_SEEDS_QUICK, SEEDS))


def _check_seeds(base: tuple[Path, Answered], work: Path, seeds: range) -> None:
    outcomes = [random_trial(*base, work, seed) for seed in seeds]
    assert [outcome for outcome in outcomes if outcome.is_silent] == []
