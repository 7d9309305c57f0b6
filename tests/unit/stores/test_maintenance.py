"""Checking a store changes nothing; repairing one keeps what is readable, and can be interrupted anywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairlane import maintenance
from fairlane.adapters import copying
from fairlane.adapters.folder import replacement
from fairlane.adapters.log import repair as log_repair
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.adapters.rocksdb import repair
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.system import SystemEntropy
from fairlane.assembly import open_broker
from fairlane.broker.handlers.internal import IdentifyJournal, ReadSlice
from fairlane.cli.main import cli
from fairlane.errors import InvalidArgument, StoreLocked
from fairlane.maintenance import check_store, declare_restored, repair_store
from fairlane.testing.stepped import SteppedBroker
from tests.kit.damage.base import QUEUE, Answered, make_base
from tests.kit.damage.trial import KINDS_OF
from tests.kit.ids import numbered


@pytest.fixture(scope="module", params=["log", "rocksdb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, kind: str) -> tuple[Path, Answered]:
    folder = tmp_path_factory.mktemp("base") / "store"
    return folder, make_base(folder, kind)


@pytest.fixture
def folder(base: tuple[Path, Answered], tmp_path: Path) -> Path:
    return shutil.copytree(base[0], tmp_path / "store")


def content(folder: Path) -> dict[str, bytes]:
    """Return all files but RocksDB's own log, which even a reader writes."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("LOG"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def damage(folder: Path) -> None:
    """Damage a commit in the middle of the log, so that the ones after it can't be used."""
    if (folder / "log").exists():
        KINDS_OF["log"]["log: a commit flipped at 50 %"](folder)
    else:
        KINDS_OF["rocksdb"]["log: 1 byte flipped at 50 %"](folder)


def module_of(step: str, kind: str) -> object:
    """Return the module whose function is a step of a repair."""
    steps = {"write_high_water": replacement, "write_mark": replacement, "move_aside": maintenance}
    return steps.get(step, copying if kind == "log" and step.startswith("_copy") else REPAIRS[kind])


REPAIRS = {"log": log_repair, "rocksdb": repair}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["--output", "json", "store", *words])


def test_a_check_of_a_whole_store_changes_nothing(folder: Path, base: tuple[Path, Answered]) -> None:
    """It counts the messages that are alive, and leaves every file as it is."""
    before = content(folder)
    report = check_store(folder)
    assert (report.is_whole, report.messages) == (True, len(base[1].payloads))
    assert content(folder) == before


def test_a_check_of_a_damaged_store_changes_nothing(base: tuple[Path, Answered], tmp_path: Path, kind: str) -> None:
    """Whatever it finds, the evidence stays."""
    chosen = [name for name in KINDS_OF[kind] if name.startswith(("log: 1 byte", "full")) or "gone" in name]
    for name in chosen:
        folder = shutil.copytree(base[0], tmp_path / name.replace("/", "-"))
        KINDS_OF[kind][name](folder)
        before = content(folder)
        assert check_store(folder).is_whole == name.startswith(("OPTIONS", "LOCK")), name
        assert {name: data for name, data in content(folder).items() if name in before} == before


def test_a_dry_run_changes_nothing_and_says_what_the_repair_does(folder: Path) -> None:
    """The range of lost sequences is known before anything is changed."""
    damage(folder)
    before = content(folder)
    planned = repair_store(folder, is_dry_run=True)
    assert content(folder) == before
    assert planned.aside is None
    done = repair_store(folder, is_dry_run=False)
    assert (done.found, done.next_sequence) == (planned.found, planned.next_sequence)
    assert done.found.end < done.found.expected_end


def test_a_repair_keeps_the_damaged_files(folder: Path) -> None:
    """Everything that was there is in the folder that the repair names, byte for byte."""
    damage(folder)
    before = content(folder)
    aside = repair_store(folder, is_dry_run=False).aside
    assert aside is not None
    assert {name: data for name, data in content(aside).items() if "LOCK" not in name} == {
        name: data for name, data in before.items() if "LOCK" not in name
    }
    assert check_store(folder).is_whole


@pytest.mark.parametrize(
    "step", ["_copy_pages", "_copy_bodies", "complete", "move_aside", "write_high_water", "write_mark"]
)
def test_an_interrupted_repair_can_be_repeated(
    folder: Path, base: tuple[Path, Answered], step: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stops, the next run ends with the same messages, and no id is issued again."""
    damage(folder)
    planned = repair_store(folder, is_dry_run=True)
    with monkeypatch.context() as patched:
        patched.setattr(module_of(step, kind), step, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            repair_store(folder, is_dry_run=False)
    repair_store(folder, is_dry_run=False)
    assert check_store(folder).is_whole
    with open_broker(folder) as broker:
        kept = [id_ for id_ in base[1].payloads if numbered(id_) < planned.found.end]
        assert all(broker.get(QUEUE, id_).payload == base[1].payloads[id_].encode() for id_ in kept)
        assert numbered(broker.enqueue(QUEUE, b"new")) >= planned.next_sequence


def test_what_an_interrupted_repair_left_behind_is_not_used_later(
    folder: Path, base: tuple[Path, Answered], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it the operator restores a backup; a later repair of its high-water mark keeps that, and tidies up."""
    damage(folder)
    with monkeypatch.context() as patched:
        patched.setattr(maintenance, "move_aside", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            repair_store(folder, is_dry_run=False)
    shutil.rmtree(folder / kind)
    shutil.copytree(base[0] / kind, folder / kind)
    (folder / "HIGH-WATER").unlink()
    repair_store(folder, is_dry_run=False)
    assert check_store(folder).messages == len(base[1].payloads)
    assert not list(folder.glob(f"{kind}.*"))


def test_an_interrupted_dry_run_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy on which RocksDB's own repair is tried is deleted, whatever becomes of that."""
    if not (folder / "rocksdb").exists():
        pytest.skip("A log has no repair of its own.")
    (folder / "rocksdb" / "CURRENT").unlink()
    before = content(folder)
    monkeypatch.setattr(repair, "create_database", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        repair_store(folder, is_dry_run=True)
    assert content(folder) == before


def _interrupt(*_words: object, **_more: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [check_store, lambda folder: repair_store(folder, is_dry_run=True)])
def test_a_store_that_a_broker_has_open_is_left_alone(folder: Path, command: Callable[[Path], object]) -> None:
    """Files that change while they are read would look damaged."""
    with open_broker(folder), pytest.raises(StoreLocked):
        command(folder)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """Neither command makes a store where there is none."""
    with pytest.raises(InvalidArgument, match="not a Fairlane store"):
        check_store(tmp_path)
    with pytest.raises(InvalidArgument, match="Only a store in a folder"):
        repair_store("postgresql://localhost/x", is_dry_run=True)


def test_the_command_that_finishes_a_repair_says_where_the_damaged_files_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted repair has moved them already, so the one that finishes it moves nothing."""
    damage(folder)
    with monkeypatch.context() as patched:
        patched.setattr(replacement, "write_high_water", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            repair_store(folder, is_dry_run=False)
    done = CliRunner().invoke(cli, ["store", "repair", str(folder), "--yes"])
    assert done.exit_code == 0
    assert "The damaged files are in the folder damaged-N that the interrupted repair made." in done.stdout


def test_the_commands_report_damage_and_repair_it(folder: Path) -> None:
    """The exit code tells whether the store is whole, and the answer what is lost."""
    assert run("check", str(folder)).exit_code == 0
    if (folder / "log").exists():
        KINDS_OF["log"]["log: 100 B zeroed at the end"](folder)
    else:
        KINDS_OF["rocksdb"]["log: 100 B off the end"](folder)
    checked = run("check", str(folder))
    assert checked.exit_code == 1
    assert json.loads(checked.stdout)["lost_sequences"] == [458, 458]
    assert run("repair", str(folder), "--dry-run").exit_code == 0
    assert run("check", str(folder)).exit_code == 1
    assert run("repair", str(folder)).exit_code == 2, "there is no terminal for the question"
    repaired = run("repair", str(folder), "--yes")
    assert repaired.exit_code == 0
    assert Path(json.loads(repaired.stdout)["aside"]).name == "damaged-1"
    assert run("check", str(folder)).exit_code == 0


def test_a_restored_backup_has_a_journal_of_its_own(folder: Path, base: tuple[Path, Answered]) -> None:
    """A copy that is declared restored keeps its messages, under a new journal id and with greater ids."""
    with open_broker(base[0]) as broker:
        before = broker.call(ReadSlice(after=0))
    told = json.loads(run("restored", str(folder), "--yes").stdout)
    with open_broker(folder) as broker:
        journal = broker.call(IdentifyJournal())
        assert (journal.journal_id, journal.journal_id != before.journal_id) == (told["journal_id"], True)
        assert journal.since > before.end + (1 << 35)
        assert numbered(broker.enqueue(QUEUE, b"after the restore")) >= told["next_sequence"]
    with open_broker(base[0]) as broker:
        assert broker.call(IdentifyJournal()).journal_id == before.journal_id
    assert check_store(folder).messages == len(base[1].payloads) + 1


def test_only_a_store_that_is_closed_can_be_declared_restored(folder: Path, tmp_path: Path) -> None:
    """An open store, a folder without a store, and an operator who does not confirm change nothing."""
    with open_broker(folder) as broker:
        before = broker.call(IdentifyJournal())
        with pytest.raises(StoreLocked):
            declare_restored(folder)
    with pytest.raises(InvalidArgument, match="not a Fairlane store"):
        declare_restored(tmp_path / "nowhere")
    assert run("restored", str(folder)).exit_code != 0
    with open_broker(folder) as broker:
        assert broker.call(IdentifyJournal()) == before


def test_the_store_of_a_partition_can_be_declared_restored(tmp_path: Path) -> None:
    """A partition's journal counts from a high number, which its store does not know; its records tell it."""
    first = 3 << 47

    def opened() -> SteppedBroker:
        return SteppedBroker(NumberedStore(RocksDbStore(tmp_path / "store"), first=first), entropy=SystemEntropy())

    broker = opened()
    broker.create_queue("orders~3")
    before = broker.call(IdentifyJournal())
    broker.close()
    declare_restored(tmp_path / "store")
    broker = opened()
    after = broker.call(IdentifyJournal())
    assert (before.since, after.journal_id != before.journal_id) == (first, True)
    assert numbered(broker.enqueue("orders~3", b"x")) > after.since > first + (1 << 35)
    broker.close()
