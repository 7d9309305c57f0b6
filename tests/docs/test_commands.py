"""Every ``fairlane`` command in the documentation exists, with the options that the page uses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(?:sh|bash|shell|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
ENDS = {"|", "||", "&&", "&", ";", ")", ">", ">>", "<", "2>"}


def commands(page: Path) -> list[list[str]]:
    """Return the words after ``fairlane`` of each command in a page's shell blocks."""
    found = []
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line.replace("$(", " ").removeprefix("$ "), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            try:
                words = list(lexer)
            except ValueError:  # a string that goes on in the next line
                continue
            for at, word in enumerate(words):
                is_first = at == 0 or words[at - 1] in ENDS or "=" in words[at - 1]
                if word == "fairlane" and is_first:
                    rest = words[at + 1 :]
                    end = next((place for place, each in enumerate(rest) if each in ENDS), len(rest))
                    found.append(rest[:end])
    return found


SHOWN = [(page.relative_to(ROOT), words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(
    ("page", "words"), SHOWN, ids=lambda each: " ".join(each) if isinstance(each, list) else str(each)
)
def test_a_command_in_the_documentation_exists(page: Path, words: list[str]) -> None:
    """The command line parses: no unknown command and no unknown option."""
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0, f"{page}: {result.output}"


def test_commands_are_found() -> None:
    """The pages show commands, so that a change of their layout cannot empty this test."""
    assert len(SHOWN) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_installing_works_before_there_is_a_release(page: Path) -> None:
    """No page installs Fairlane from an index, where it is not yet."""
    assert not re.search(r"pip install ['\"]?fairlane", page.read_text())
