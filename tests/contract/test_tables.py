"""Every format keeps tables alike, in a folder and in an object store, whatever happens to the process that writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from fairlane.lakehouse import open_tables, parse_address
from fairlane.lakehouse.delta import storage_options
from fairlane.lakehouse.iceberg import catalog_of
from fairlane.lakehouse.state import MANIFEST, TableChange, TablesState
from tests.kit.lakehouse import AZURE, PLACES, SHAPES, STORES, Run, address_at, dying_at, numbers_at, row


@pytest.fixture(params=[*PLACES, *STORES, *AZURE])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for tables, of every kind."""
    return address_at(request.param, tmp_path, request)


def run(address: str) -> Run:
    """Return a run that has begun."""
    found = Run(address)
    found.begin()
    return found


def test_files_are_added_replaced_and_merged(address: str) -> None:
    """Numbers are added to a day, replaced on another, and merged; each table has each number once."""
    first = run(address)
    first.commit(first.write([1, 2]))
    second = run(address)
    second.commit(second.write([3], of_day=2))
    third = run(address)
    third.commit(third.replace([4], of_day=2))
    fourth = run(address)
    fourth.commit(fourth.merge([5]))
    for table in SHAPES:
        assert numbers_at(address, table) == [1, 2, 4, 5]
    tables = open_tables(address)
    assert sorted(file.rows for file in tables.files("numbers")) == [1, 1, 2]
    assert tables.dataset("numbers").to_table().sort_by("number").to_pylist() == [
        row(1),
        row(2),
        row(4, of_day=2),
        row(5),
    ]


def test_a_run_that_is_killed_at_any_step_counts_once_or_not_at_all(address: str) -> None:
    """Before, after and between all changes of files and logs: the tables are those before the run or those after it.

    The next run is killed at the same step of finishing it, and the one after it finds no number lost or doubled.
    """
    known = run(address)
    known.commit(known.write([1, 2]))
    expected = [1, 2]
    for step in range(1, 500, 3 if "iceberg" in address else 1):  # its commits have many steps that are alike
        number, before = 10 * step, expected
        killed = run(address)
        changes = killed.replace([1, 2], of_day=1) if step % 4 == 0 else killed.merge([number, number + 1])
        with dying_at(step) as death:
            killed.commit(changes)
        seen = numbers_at(address)
        with dying_at(step):
            run(address)
        following = run(address)
        if following.state.run > known.state.run:
            expected = [1, 2] if step % 4 == 0 else [*before, number, number + 1]
        assert seen in (before, expected), step
        assert [numbers_at(address, table) for table in SHAPES] == [expected] * 3, step
        known = following
        if not death.is_dead:
            break
    assert not death.is_dead
    assert step > 8


def test_of_two_runs_at_once_one_is_refused(address: str) -> None:
    """The second run can't be committed and nothing of it counts; the next run goes on from the first."""
    first, second = run(address), run(address)
    changes, others = first.write([1]), second.write([2])
    first.commit(changes)
    with pytest.raises(StoreLocked, match="Another run has updated the tables"):
        second.commit(others)
    third = run(address)
    third.commit(third.write([3]))
    assert [numbers_at(address, table) for table in SHAPES] == [[1, 3]] * 3
    files = {name for table in SHAPES for name in third.lakehouse.storage.names(f"{table}/") if "0000" in name}
    assert not [name for name in files if second.lakehouse.attempt().token in name]


def test_two_processes_that_finish_a_run_change_the_tables_once(address: str) -> None:
    """A run is committed, its process dies, and two others carry it out one after the other with what each knew."""
    begun = run(address)
    changes = begun.write([1, 2])
    swapped = _committed_only(begun, changes)
    one, two = Run(address), Run(address)
    states = [each.lakehouse.load(TablesState) for each in (one, two)]
    assert states == [swapped, swapped]
    one.lakehouse.finish(swapped)
    two.lakehouse.finish(swapped)
    assert [numbers_at(address, table) for table in SHAPES] == [[1, 2]] * 3


def _committed_only(begun: Run, changes: dict[str, TableChange]) -> TablesState:
    """Commit a run and let its process die before anything is carried out; return the manifest."""
    for step in range(1, 100):
        with dying_at(step):
            begun.commit(changes)
        found = Run(str(begun.lakehouse.address)).lakehouse.load(TablesState)
        if found is not None:
            assert found.swap is not None
            return found
    raise AssertionError("The run was never committed.")


def test_readers_go_on_while_a_run_is_committed(address: str) -> None:
    """A table that was opened before a run is read as it was, or it says that a file is gone; it never mixes both."""
    first = run(address)
    first.commit(first.write([1, 2]))
    opened = open_tables(address).dataset("numbers")
    second = run(address)
    second.commit(second.replace([3], of_day=1))
    try:
        assert sorted(opened.to_table()["number"].to_pylist()) == [1, 2]
    except OSError:
        assert address.startswith("/")
    assert numbers_at(address) == [3]


def test_leftovers_of_killed_runs_are_swept(address: str) -> None:
    """Files that a killed run has written are gone when the next run is committed."""
    lost = run(address)
    lost.write([7, 8])
    following = run(address)
    following.commit(following.write([1]))
    names = [name for table in SHAPES for name in following.lakehouse.storage.names(f"{table}/")]
    names += following.lakehouse.storage.names(".staged/")
    assert not [name for name in names if lost.lakehouse.attempt().token in name]
    assert numbers_at(address) == [1]


def test_columns_and_tables_have_comments(address: str) -> None:
    """The meaning of a table and of each column is kept with it, where the tools of each format look for it."""
    first = run(address)
    first.commit(first.write([1]))
    tables = open_tables(address)
    shape = tables.shape("numbers")
    assert shape.meaning == "One number."
    assert shape.schema.field("number").metadata == {b"comment": b"the number"}
    form = tables.address.format
    if form == "delta":
        delta = DeltaTable(f"{tables.address.root}/numbers", storage_options=storage_options(tables.address))
        assert delta.metadata().description == "One number."
        assert {field.name: field.metadata for field in delta.schema().fields}["at"] == {"comment": "when"}
    if form == "iceberg":
        iceberg = catalog_of(tables.address).load_table("fairlane.numbers")
        assert iceberg.properties["comment"] == "One number."
        assert iceberg.schema().find_field("at").doc == "when"


def test_another_format_is_refused(address: str) -> None:
    """Tables are opened in the format they have; the error names the address that works."""
    first = run(address)
    first.commit(first.write([1]))
    form = parse_address(address).format
    other = "delta" if form != "delta" else "parquet"
    root = parse_address(address)
    wrong = f"{other}:{root.root}?" + "&".join(
        f"{name}={value}" for name, value in root.options if name not in ("catalog", "namespace")
    )
    with pytest.raises(InvalidArgument, match=f"have the format {form}, not {other}"):
        open_tables(wrong.removesuffix("?"))
    with pytest.raises(InvalidArgument, match="There are no tables at"):
        open_tables(address.replace("tables", "nowhere"))
    assert first.lakehouse.storage.read(MANIFEST) is not None


def test_tables_of_another_root_in_the_same_catalog_are_refused(tmp_path: Path) -> None:
    """Two roots share a catalog and a namespace: the second one is refused before it writes anything."""
    catalog = f"catalog=sqlite:///{tmp_path}/catalog.db"
    production, staging = f"iceberg:{tmp_path}/production?{catalog}", f"iceberg:{tmp_path}/staging?{catalog}"
    for number in (1, 2, 3):
        first = run(production)
        first.commit(first.write([number]))
    second = run(staging)
    with pytest.raises(InvalidArgument, match=r"has its files at .*production/numbers.*&namespace=NAME"):
        second.write([7])
    assert second.lakehouse.storage.read(MANIFEST) is None
    assert numbers_at(production) == [1, 2, 3]
    other = run(f"{staging}&namespace=staging")
    other.commit(other.write([7]))
    assert numbers_at(f"{staging}&namespace=staging") == [7]
    assert numbers_at(production) == [1, 2, 3]


@pytest.mark.parametrize("place", ["delta in a folder", "iceberg in a folder", "delta in S3", "iceberg in S3"])
def test_tables_that_are_ahead_of_their_manifest_are_refused(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The manifest is lost, or replaced by an old one: a run is refused instead of being swallowed by the marks."""
    address = address_at(place, tmp_path, request)
    first = run(address)
    first.commit(first.write([1, 2]))
    old = first.lakehouse.storage.read(MANIFEST)
    assert old is not None
    second = run(address)
    second.commit(second.write([3]))
    files = [file.path for file in second.lakehouse.files("numbers")]
    second.lakehouse.storage.delete([MANIFEST])
    with pytest.raises(StoreCorrupt, match=r"has run 2, but manifest\.json at .* knows no run after 0"):
        run(address).write([4])
    second.lakehouse.storage.put(first.state.listing or "", b"{}")
    second.lakehouse.storage.put(MANIFEST, old.data)
    with pytest.raises(StoreCorrupt, match="knows no run after 1"):
        run(address).write([4])
    assert set(files) <= set(second.lakehouse.storage.names("numbers/"))


@pytest.mark.parametrize("place", ["delta in S3", "iceberg in S3"])
def test_a_run_that_begins_to_write_after_another_was_committed_says_so(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its tables are ahead of the manifest that it knows, but nothing was lost: it may be repeated."""
    address = address_at(place, tmp_path, request)
    first, second = run(address), run(address)
    first.commit(first.write([1]))
    with pytest.raises(StoreLocked, match="Another run has updated the tables"):
        second.write([2])
