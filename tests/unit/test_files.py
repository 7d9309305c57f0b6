"""Files replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.files import replacing, unfinished_name


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
