"""Which source files a worker watches."""

from __future__ import annotations

from pathlib import Path

from fairlane.worker.sources import difference, versions


def test_python_files_of_the_program_are_watched(tmp_path: Path) -> None:
    """Python files in packages count; other files, hidden folders and virtual environments do not."""
    names = ("tasks.py", "shop/mail.py", "notes.txt", ".git/hook.py", "__pycache__/tasks.py", "env/pyvenv.cfg")
    for name in (*names, "env/lib/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert set(versions(tmp_path)) == {"tasks.py", "shop/mail.py"}


def test_new_changed_and_deleted_files_are_differences() -> None:
    """A file that is new, gone or written again is named; equal versions are no difference."""
    before = {"a.py": 1, "b.py": 2}
    assert difference(before, dict(before)) is None
    assert difference(before, before | {"c.py": 3}) == "c.py"
    assert difference(before, before | {"b.py": 9}) == "b.py"
    assert difference(before, {"b.py": 2}) == "a.py"
