"""D7 and D8: the dashboard uses the words of the glossary, and the colours of one palette."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.tidiness import WORDS

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "fairlane" / "dashboard" / "static"
STYLE = (STATIC / "style.css").read_text()
PAGES = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".html"))
SECTION = (ROOT / "docs" / "glossary.md").read_text().split("## Words that the dashboard does not use\n")[1]
OLD_WORDS = [
    word for row in re.findall(r"^\| (?!not \|)(\w[^|]*) \|", SECTION, re.MULTILINE) for word in row.split(", ")
]
LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`|>([^<>{}]+)<")
"""A string of JavaScript, or a text between tags of HTML."""
COLOUR = re.compile(r"#(?:[0-9a-fA-F]{3,4}){1,2}\b(?!/)|\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch)a?\(")
PALETTE = re.compile(r":root \{(.*?)\n *\}", re.DOTALL)
NAMED = re.compile(r"--([\w-]+):")


def texts(path: Path) -> str:
    """Return what a page may show: its strings, without the code that is inserted into them."""
    found = ("".join(groups) for groups in LITERAL.findall(path.read_text()))
    return "\n".join(re.sub(r"\$\{[^}]*\}", "…", text) for text in found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_d7_no_page_uses_a_word_that_the_glossary_replaces(path: Path) -> None:
    """No text of the dashboard has one of the words that the glossary names with a better one, or hides who acts."""
    assert "letter" in OLD_WORDS
    pattern = re.compile(rf"(?<!dead )(?<![-\w])({'|'.join(OLD_WORDS)})(?![-\w])", re.IGNORECASE)
    assert [line for line in texts(path).splitlines() if pattern.search(line) or WORDS.search(line)] == []


def test_d7_the_texts_of_a_page_are_found() -> None:
    """The check reads strings, templates and text between tags, so that an old word in any of them is found."""
    assert "waiting for its turn" in texts(STATIC / "keys.js")
    assert "messages are deleted for good" in texts(STATIC / "messages.js")
    assert "Fairlane" in texts(STATIC / "index.html")


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_d8_colours_are_named_in_one_place(path: Path) -> None:
    """Only the palette at the top of style.css has values of colours; the icon is a picture of its own."""
    text = path.read_text()
    if path.name == "icon.svg":
        return
    if path.name == "style.css":
        text = PALETTE.sub("", text)
    assert COLOUR.findall(text) == []


def test_d8_the_palette_is_whole() -> None:
    """The light and the dark palette have the same colours, and no page uses another."""
    light, dark = (set(NAMED.findall(block)) for block in PALETTE.findall(STYLE))
    assert light == dark
    uses = "".join(path.read_text() for path in STATIC.iterdir())
    assert set(re.findall(r"(?:var\(|colour\(\")--([\w-]+)", uses)) <= light
