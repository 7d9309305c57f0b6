"""Files replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.files import replacing, restrict, unfinished_name, write_secret


def test_a_replaced_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"earlier")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"earlier"
    assert path.read_bytes() == b"new"
    assert not unfinished_name(path).exists()


def test_a_failed_write_leaves_the_earlier_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"earlier")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("text")  # type: ignore[call-overload] # what fails here is not the point
    assert [each.name for each in tmp_path.iterdir()] == ["manifest.json"]
    assert path.read_bytes() == b"earlier"


def modes(folder: Path) -> dict[str, int]:
    """Return the permission bits of a folder and of everything in it."""
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def test_a_restricted_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Files become 0600 and folders 0700, and a link that leads outside changes nothing there."""
    inside, outside = tmp_path / "store", tmp_path / "outside"
    (inside / "rocksdb").mkdir(parents=True)
    for path, mode in ((inside / "FAIRLANE", 0o644), (inside / "rocksdb" / "000004.log", 0o666), (outside, 0o644)):
        path.touch()
        path.chmod(mode)
    inside.chmod(0o755)
    (inside / "rocksdb").chmod(0o777)
    link = inside / "link"
    link.symlink_to(outside)
    assert restrict(inside)
    link.unlink()
    assert modes(inside) == {".": 0o700, "FAIRLANE": 0o600, "rocksdb": 0o700, "rocksdb/000004.log": 0o600}
    assert outside.stat().st_mode & 0o777 == 0o644
    assert not restrict(inside)


@pytest.mark.parametrize("before", ["nothing", "readable", "link"])
def test_a_secret_is_written_for_its_owner_alone(tmp_path: Path, before: str) -> None:
    """Whatever has the name of the file, it is replaced by one with mode 0600, and no link is followed."""
    path, other = tmp_path / "admin.key", tmp_path / "other"
    other.write_text("untouched")
    if before == "readable":
        path.touch()
        path.chmod(0o644)
    elif before == "link":
        path.symlink_to(other)
    write_secret(path, "secret\n")
    assert (path.read_text(), path.lstat().st_mode & 0o777) == ("secret\n", 0o600)
    assert other.read_text() == "untouched"


def test_a_prepared_link_does_not_receive_a_secret(tmp_path: Path) -> None:
    """A link under the name that a secret is first written to is removed, not followed."""
    path, other = tmp_path / "admin.key", tmp_path / "other"
    unfinished_name(path).symlink_to(other)
    write_secret(path, "secret")
    assert not other.exists()
    assert path.read_text() == "secret"
