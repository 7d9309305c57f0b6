"""Every command that opens the store of a data folder knows that the store was there, and changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane.adapters.folder.replacement import UNKNOWN_SKIP
from fairlane.assembly import open_broker
from fairlane.cli.main import cli
from fairlane.data_folder import STORE_FOLDER, STORE_MARK, mark_made
from fairlane.errors import StoreDamaged, StoreFailed
from fairlane.maintenance import check_store, repair_store

REACHED = 7 << 36


@pytest.fixture(params=["missing", "empty"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data folder whose store has vanished: the whole folder, or all that was in it."""
    folder = tmp_path / "data"
    folder.mkdir()
    mark_made(folder, sequence=REACHED)
    if request.param == "empty":
        (folder / STORE_FOLDER).mkdir()
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "--data {data} queue list",
        "--data {data} backup {other}",
        "store restored {data} --yes",
        "store copy {data} {other}",
        "store copy {data}/store {other}",
        "store copy rocksdb:{data}/store {other}",
    ],
)
def test_a_command_refuses_a_store_that_has_vanished(data: Path, tmp_path: Path, words: str) -> None:
    """It fails with ``store_damaged``, and makes no new store."""
    before = sorted(data.rglob("*"))
    given = words.format(data=data, other=tmp_path / "other").split()
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 3, done.output
    assert "store_damaged" in done.stderr
    assert f"{data / STORE_FOLDER} is missing or empty" in done.stderr
    assert sorted(data.rglob("*")) == before


def test_a_dry_run_says_what_is_lost_and_changes_nothing(data: Path) -> None:
    """A check and a dry run of a repair report the loss."""
    before = sorted(data.rglob("*"))
    store = data / STORE_FOLDER
    report = check_store(store)
    assert "is missing or empty" in report.faults[0]
    assert repair_store(store, is_dry_run=True).found == report
    done = CliRunner().invoke(cli, ["store", "check", str(data)])
    assert (done.exit_code, "is missing or empty" in done.stdout) == (1, True)
    assert sorted(data.rglob("*")) == before


def test_a_repair_begins_an_empty_store_with_numbers_that_were_never_issued(data: Path) -> None:
    """The new store opens, and one that takes its place after another loss goes on above it as well."""
    store = data / STORE_FOLDER
    planned = repair_store(store, is_dry_run=True).next_sequence
    assert repair_store(store, is_dry_run=False).next_sequence == planned
    assert repair_store(store, is_dry_run=False).found.is_whole
    with open_broker(store) as broker:
        broker.create_queue("orders")
    assert check_store(store).end > planned >= REACHED + UNKNOWN_SKIP
    shutil.rmtree(store)
    assert repair_store(store, is_dry_run=True).next_sequence >= planned + UNKNOWN_SKIP


def test_a_store_behind_a_broken_link_is_not_made_again(data: Path) -> None:
    """A repair of a volume that is not mounted fails with an error that says so."""
    store = data / STORE_FOLDER
    if store.exists():
        store.rmdir()
    store.symlink_to(data / "not-mounted")
    with pytest.raises(StoreDamaged):
        open_broker(store)
    with pytest.raises(StoreFailed, match="Cannot recreate the folder"):
        repair_store(store, is_dry_run=False)


def test_a_program_may_call_its_folder_store(tmp_path: Path) -> None:
    """Without the mark of a server beside it, a missing folder is a new store."""
    with open_broker(tmp_path / STORE_FOLDER):
        assert not (tmp_path / STORE_MARK).exists()
